"""How the plans of one run are made: the first one, and those that follow when more is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.spec.nodes import Pipeline
from pipelines.spec.plan import Verify, make_plan
from pipelines.spec.planned import Plan
from stages.store.conditional import ConditionalStore


@dataclass(frozen=True)
class Planning:
    """A pipeline, its store, and what the user chose.

    Attributes:
        only: nodes to run, all if empty.
        until: the last node to run, with all that it needs.
        force: stages to run again for good.
        refresh: stages to run again in this run only.
        verify: how committed results are checked by the first plan.
    """

    pipeline: Pipeline
    store: ConditionalStore
    run_id: str
    only: Sequence[str] = ()
    until: str | None = None
    force: Sequence[str] = ()
    refresh: Sequence[str] = ()
    verify: Verify = "list"

    def first(self) -> Plan:
        """The plan that the run begins with; it forces what is to be forced.

        Raises:
            SpecError: an external input cannot be found, or an alias cannot be used.
            UserError: a flag names no stage, or a chosen stage needs what is neither committed nor chosen.
            StorageError: the store cannot be read.
        """
        return self._plan(self.verify, None)

    def again(self, before: Plan) -> Plan:
        """A plan on what is committed by now; it forces what had no key in the plan before. Raises as `first`."""
        return self._plan("list", before)

    def _plan(self, verify: Verify, before: Plan | None) -> Plan:
        return make_plan(
            self.pipeline,
            self.store,
            self.force,
            self.only,
            self.until,
            refresh=self.refresh,
            run_id=self.run_id,
            verify=verify,
            before=before,
        )
