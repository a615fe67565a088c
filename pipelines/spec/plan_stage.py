"""What becomes of a stage whose key is known: reused, resumed, waited for, or run."""

from collections.abc import Mapping

from pipelines.spec.damage import damage_reason, find_damage
from pipelines.spec.drift import drift_since
from pipelines.spec.explain import changes_since, reason_to_run
from pipelines.spec.history import History
from pipelines.spec.nodes import StageNode, StageOutput
from pipelines.spec.planned import Plan, PlannedNode
from pipelines.spec.resume_points import resume_points
from pipelines.spec.stage_key import REFRESH_SALT, Identified
from stages.store.conditional import ConditionalStore
from stages.store.copies import adopt_copies
from stages.store.holder import is_gone, this_holder
from stages.store.layout import StagePaths
from stages.store.lease import LeaseRecord
from stages.store.manifest import claim_manifest, read_manifest, why_lost
from stages.store.moments import shown_time
from stages.store.records import read_record


class StageDecider:
    """Looks stages up in a store, for one plan."""

    def __init__(
        self, store: ConditionalStore, history: History, run_id: str | None, deep: bool, before: Plan | None
    ) -> None:
        """For a run, what is reused is kept from the garbage collector; `deep`: check every file's bytes.

        A run with `deep` makes copies from elsewhere, whose bytes are right, as good as what was committed here.
        What the plan `before` of the same run found to be whole is not checked again.
        """
        found = [] if before is None else [one.manifest for one in before.nodes.values() if one.manifest is not None]
        self._checked = {manifest.key: manifest.attempt for manifest in found}
        self._store = store
        self._history = history
        self._run_id = run_id
        self._deep = deep
        self._first_with: dict[str, str] = {}

    def committed(
        self, node: StageNode, identified: Identified, planned: Mapping[str, PlannedNode]
    ) -> PlannedNode | None:
        """Reuse of a committed result, or a new run of one that is damaged; none when there is no result."""
        same_as = self._first_with.get(identified.key)
        if same_as is not None:
            first = planned[same_as]
            reuse = PlannedNode(node, "reuse", f"same as {same_as}", manifest=first.manifest, same_as=same_as)
            return identified.of(reuse)
        paths = StagePaths(node.kind, identified.key)
        manifest = claim_manifest(self._store, paths) if self._run_id is not None else read_manifest(self._store, paths)
        if manifest is None:
            return None
        seen = manifest.attempt == self._checked.get(identified.key)
        damage = None if seen else find_damage(self._store, manifest, self._deep)
        if damage is not None:
            return identified.of(PlannedNode(node, "run", damage_reason(manifest, damage), damage=damage))
        if self._deep and self._run_id is not None and not seen:
            manifest = adopt_copies(self._store, manifest)
        self._lead(node, identified)
        reason = f"committed {shown_time(manifest.created)}"
        return identified.of(PlannedNode(node, "reuse", reason, manifest=manifest, drift=drift_since(manifest)))

    def to_run(self, node: StageNode, identified: Identified, planned: Mapping[str, PlannedNode]) -> PlannedNode:
        """Run a stage that is not committed, resume it, or wait for another run that works on it."""
        self._lead(node, identified)
        return identified.of(self._to_run(node, identified, planned))

    def _lead(self, node: StageNode, identified: Identified) -> None:
        """Have later nodes of this key rely on this one, unless it waits for more than they do and may never run."""
        takes_from = {value.stage for value in node.inputs.values() if isinstance(value, StageOutput)}
        if node.condition is None and takes_from.issuperset(node.needs):
            self._first_with[identified.key] = node.id

    def _to_run(self, node: StageNode, identified: Identified, planned: Mapping[str, PlannedNode]) -> PlannedNode:
        paths = StagePaths(node.kind, identified.key)
        survey = resume_points(self._store, paths, node.resume.policy, self._run_id, limit=1)
        step = survey.points[0].step if survey.points else None
        lease = self._live_lease(paths)
        if lease is not None and node.on_conflict != "takeover":
            reason = _waiting(lease, step, fails=node.on_conflict == "fail")
            return PlannedNode(node, "wait", reason, resume_step=step, holder=lease.holder)
        taken = f"; takes it over from {lease.holder.shown}" if lease is not None else ""
        if survey.points:
            newer = "".join(f"; {text}" for text in survey.passed_over)
            reason = f"from step {step} of attempt {survey.points[0].attempt.partition('-')[0]}{newer}{taken}"
            return PlannedNode(node, "resume", reason, resume_step=step)
        if identified.salt is not None:
            mode = "refresh" if identified.salt.startswith(REFRESH_SALT) else "off"
            return PlannedNode(node, "run", f"cache {mode}{taken}")
        lost = why_lost(self._store, paths)
        if lost is not None:
            return PlannedNode(node, "run", f"{lost}{taken}")
        others = {one.key for one in planned.values() if one.key} | {identified.key}
        changes = changes_since(self._history, node, identified.payload, others)
        reason = reason_to_run(node, changes, self._history, planned)
        return PlannedNode(node, "run", f"{reason}{taken}", changes=changes or ())

    def _live_lease(self, paths: StagePaths) -> LeaseRecord | None:
        """The lease of another run, unless its process is known to be gone."""
        lease = read_record(self._store, paths.lease, LeaseRecord)
        if lease is None or lease.state == "released":
            return None
        own = this_holder()
        is_own = lease.holder.model_copy(update={"run_url": None}) == own
        return None if is_own or is_gone(lease.holder, own) else lease


def _waiting(lease: LeaseRecord, step: int | None, fails: bool) -> str:
    saved = "nothing saved yet" if step is None else f"saved step {step}"
    end = "; fails unless that run has ended (on_conflict: fail)" if fails else ""
    return f"for {lease.holder.shown}, attempt {lease.epoch}, {saved}{end}"
