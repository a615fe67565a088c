"""Aliases while a plan stands: where each points to, looked up once."""

from collections.abc import Mapping

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.identity import KEY_SHOWN
from pipelines.spec.nodes import AliasOutput
from pipelines.spec.planned import AliasedResult, CommittedOutput
from stages.store.aliases import AliasTarget, read_alias
from stages.store.conditional import ConditionalStore
from stages.store.layout import StagePaths
from stages.store.manifest import Manifest, check_files, read_manifest


class PlanAliases:
    """The aliases of one plan; one that is made again for the same run keeps those of the plan before."""

    def __init__(self, store: ConditionalStore, before: Mapping[str, AliasedResult]) -> None:
        self._store = store
        self._before = before
        self.found: dict[str, AliasedResult] = {}

    def target(self, value: AliasOutput) -> CommittedOutput:
        """The committed output that an alias means now.

        Raises:
            SpecError: nobody set the alias, it has no report where one is wanted, or its result is gone.
        """
        aliased = self.found.get(value.alias) or self._before.get(value.alias) or self._look_up(value)
        self.found[value.alias] = aliased
        output = aliased.output(value.artifact)
        if output is None:
            message = (
                f"alias `{value.alias}` has no report: give the action that sets it `inputs.report`, "
                "and run it with --only and its name"
            )
            raise SpecError.at(value.place, message)
        return output

    def _look_up(self, value: AliasOutput) -> AliasedResult:
        read = read_alias(self._store, value.alias)
        if read is None:
            message = (
                f"nobody set the alias `{value.alias}` in {self._store.uri}: an action `set_alias` does, "
                "for the first time with --only and its name"
            )
            raise SpecError.at(value.place, message)
        record, _ = read
        checkpoint = self._committed(value, record.checkpoint)
        report = None if record.report is None else self._committed(value, record.report)
        return AliasedResult(record, checkpoint, report)

    def _committed(self, value: AliasOutput, target: AliasTarget) -> Manifest:
        manifest = read_manifest(self._store, StagePaths(target.stage, target.key))
        problems = ["not committed any more"] if manifest is None else check_files(self._store, manifest)
        if manifest is None or problems:
            where = f"{target.stage} {target.key[:KEY_SHOWN]}"
            message = f"alias `{value.alias}` points to {where}, which is not usable: {problems[0]}; point it elsewhere"
            raise SpecError.at(value.place, message)
        return manifest
