"""Checks a stage of a pipeline file."""

from pathlib import Path

from pydantic import BaseModel

from pipelines.spec.diagnostics import did_you_mean
from pipelines.spec.graph import Draft
from pipelines.spec.nodes import Cause, Resources, Resume, Retry, StageNode, Timeout
from pipelines.spec.roles import execution_integers
from pipelines.spec.settings import read_settings
from pipelines.spec.stage_sections import ResourcesSection, ResumeSection, RetrySection, StageSection, TimeoutSection
from pipelines.spec.tree import Table, locate, lookup
from pipelines.spec.validation import validate
from pipelines.spec.wiring import Wiring
from stages.catalog import STAGES


def build_stage(draft: Draft, wiring: Wiring, path: Path) -> StageNode | None:
    """The stage, or none when problems were added."""
    section = validate(StageSection, draft.table, draft.path, draft.problems, draft.place)
    kind = draft.kind
    if kind is None:
        return None
    config = read_settings(STAGES[kind].config, draft.table, draft.path, draft.place, path, draft.problems)
    if section is None:
        return None
    inputs = wiring.stage_inputs(section.inputs, STAGES[kind].inputs, STAGES[kind].optional_inputs)
    wiring.add_needs(section.needs)
    condition = None if section.if_ is None else wiring.condition(section.if_, ("if",), own_report=False)
    on_oom = _on_oom(draft, section.retry, STAGES[kind].config)
    _check_max_parallel(draft)
    _check_num_processes(draft, section.resources, kind)
    if config is None:
        return None
    return StageNode(
        id=draft.id,
        kind=kind,
        config=config,
        inputs=inputs,
        needs=wiring.needs,
        rev=section.rev,
        retry=_retry(section.retry, on_oom),
        timeout=_timeout(section.timeout),
        resources=_resources(section.resources),
        place=draft.place,
        group=draft.instance.group,
        max_parallel=section.max_parallel,
        condition=condition,
        cache=section.cache.mode,
        resume=_resume(section.resume),
        on_conflict=section.on_conflict,
        identity=section.identity,
    )


def _on_oom(draft: Draft, section: RetrySection, config: type[BaseModel]) -> dict[str, int]:
    """The settings that are divided; those of the pipeline's defaults count for the kinds that have them."""
    here = execution_integers(config)
    own = lookup(draft.own, ("retry", "on_oom"))
    found: dict[str, int] = {}
    for name, divisor in section.on_oom.items():
        known = here
        if not isinstance(own, Table) or name not in own.entries:
            known = here | {other for stage in STAGES.values() for other in execution_integers(stage.config)}
        if name in here:
            found[name] = divisor
        elif name not in known:
            path = ("retry", "on_oom", name)
            hint = did_you_mean(name, known) or f"; there is {', '.join(f'`{one}`' for one in sorted(known)) or 'none'}"
            message = f"no whole number that changes how a stage runs but not its result{hint}"
            draft.problems.add(locate(draft.table, path)[0], (*draft.path, *path), message)
    return found


def _check_max_parallel(draft: Draft) -> None:
    entry = draft.own.entries.get("max_parallel")
    if entry is not None and draft.id == draft.instance.group:
        message = "only for a stage with `matrix` or `for_each`"
        draft.problems.add(entry.key_place, (*draft.path, "max_parallel"), message)


def _check_num_processes(draft: Draft, resources: ResourcesSection, kind: str) -> None:
    if resources.num_processes == 1:
        return
    if not STAGES[kind].multi_process:
        message = f"`{kind}` runs in one process, write `num_processes: 1` in this stage"
    elif resources.accelerator != "cpu":
        message = f"one process drives all the {resources.accelerator} devices of a machine, several need `cpu`"
    else:
        return
    path = ("resources", "num_processes")
    draft.problems.add(locate(draft.table, path)[0], (*draft.path, *path), message)


def _retry(section: RetrySection, on_oom: dict[str, int]) -> Retry:
    on: tuple[Cause, ...] = tuple(dict.fromkeys([*section.on, *(("oom",) if on_oom else ())]))
    return Retry(section.max, section.delay, section.jitter, on, section.preempted.max, on_oom)


def _timeout(section: TimeoutSection) -> Timeout:
    return Timeout(section.total, section.stall, section.grace)


def _resume(section: ResumeSection) -> Resume:
    return Resume(section.policy, section.every, section.keep_last, section.keep_every)


def _resources(section: ResourcesSection) -> Resources:
    return Resources(
        accelerator=section.accelerator,
        share=section.share,
        python=section.python,
        count=section.count,
        num_processes=section.num_processes,
        pool=section.pool,
        env=section.env,
    )
