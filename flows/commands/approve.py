"""`temper approve`: a person's answer to a gate, which stays; a run that waits for it goes on."""

import getpass
from argparse import ArgumentParser, Namespace

from flows.approving import record_answer
from flows.commands.arguments import add_file, load
from flows.resume import asking_run, refreshed, resume, waiting_run
from pipelines.spec.command_line import command_line
from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.nodes import GateNode, HumanGateNode
from pipelines.spec.plan import make_plan
from pipelines.spec.planned import Plan, PlannedNode
from stages.errors import UserError
from stages.store.approvals import Approval
from stages.store.conditional import ConditionalStore, open_store
from stages.store.moments import shown_time


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
    asking = asking_run(store, pipeline.name, gate.node.id)
    if asking is not None:
        # What it made again for itself alone has other keys than a look at the pipeline finds.
        plan = make_plan(pipeline, store, refresh=refreshed(store, asking), run_id=asking.run_id)
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
    print(f"{gate.node.id} {verdict} by {approval.by} at {shown_time(approval.at)}")
    for node_id, key in approval.stages.items():
        print(f"  {node_id}  {key[:16]}")
    print(_go_on(store, approval, plan))
    return 0


def _go_on(store: ConditionalStore, approval: Approval, plan: Plan) -> str:
    waiting = waiting_run(store, approval.pipeline, approval.gate_key)
    again = f"run again to go on: {command_line(plan.pipeline, 'run')}"
    if waiting is None:
        return again
    if resume(waiting, approval):
        return f"run {waiting.run_id} goes on: {waiting.run_url}"
    stays = f"run {waiting.run_id} cannot be resumed from here"
    own = [node_id for node_id, planned in plan.nodes.items() if planned.salt is not None]
    if own:
        return f"{stays}, and a new one asks again: it makes {', '.join(own)} anew (cache refresh)"
    return f"{again} ({stays})"


def _find(plan: Plan, name: str) -> PlannedNode:
    gates = {node_id: planned for node_id, planned in plan.nodes.items() if _asks(planned)}
    if name in gates:
        return gates[name]
    known = f"; gates that do: {', '.join(gates)}" if gates else "; this pipeline has none"
    raise UserError(f"{name}: no gate that asks a person{did_you_mean(name, gates) or known}")


def _asks(planned: PlannedNode) -> bool:
    node = planned.node
    return isinstance(node, HumanGateNode) or (isinstance(node, GateNode) and node.on_fail == "ask")
