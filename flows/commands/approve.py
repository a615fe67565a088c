"""`temper approve`: a person's answer to a gate, which stays; a run that waits for it goes on."""

import getpass
from argparse import ArgumentParser, Namespace

from flows.approving import record_answer
from flows.commands.arguments import add_file, load
from flows.resume import resume, waiting_run
from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.nodes import GateNode, HumanGateNode
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan, PlannedNode
from stages.errors import UserError
from stages.store.approvals import Approval
from stages.store.conditional import ConditionalStore, open_store


def add_arguments(parser: ArgumentParser) -> None:
    """The file, the gate, and the answer."""
    add_file(parser)
    parser.add_argument("gate", metavar="GATE", help="a gate that asks a person")
    parser.add_argument("--reject", action="store_true", help="say no: the run ends there")
    parser.add_argument("--by", metavar="NAME", default=getpass.getuser(), help="who answers (%(default)s)")
    parser.add_argument("--comment", metavar="TEXT", default="", help="why")


def run(arguments: Namespace) -> int:
    """Write the answer down, about the results as they are committed now, and have a suspended run go on.

    Raises:
        UserError: there is no such gate, or nothing to decide about yet.
    """
    pipeline = load(arguments)
    store = open_store(pipeline.store)
    plan = make_plan(pipeline, store)
    gate = _find(plan, arguments.gate)
    approval = record_answer(
        store,
        plan.nodes,
        gate,
        pipeline.name,
        approved=not arguments.reject,
        by=arguments.by,
        comment=arguments.comment,
    )
    verdict = "approved" if approval.approved else "rejected"
    print(f"{gate.node.id} {verdict} by {approval.by} at {approval.at[:19].replace('T', ' ')} UTC")
    for node_id, key in approval.stages.items():
        print(f"  {node_id}  {key[:16]}")
    print(_go_on(store, approval, arguments))
    return 0


def _go_on(store: ConditionalStore, approval: Approval, arguments: Namespace) -> str:
    waiting = waiting_run(store, approval.pipeline, approval.gate_key)
    if waiting is None:
        return f"run again to go on: temper run {arguments.file}"
    if resume(waiting, approval):
        return f"run {waiting.run_id} goes on: {waiting.run_url}"
    return f"run again to go on: temper run {arguments.file} (run {waiting.run_id} cannot be resumed from here)"


def _find(plan: Plan, name: str) -> PlannedNode:
    gates = {node_id: planned for node_id, planned in plan.nodes.items() if _asks(planned)}
    if name in gates:
        return gates[name]
    known = f"; gates that do: {', '.join(gates)}" if gates else "; this pipeline has none"
    raise UserError(f"{name}: no gate that asks a person{did_you_mean(name, gates) or known}")


def _asks(planned: PlannedNode) -> bool:
    node = planned.node
    return isinstance(node, HumanGateNode) or (isinstance(node, GateNode) and node.on_fail == "ask")
