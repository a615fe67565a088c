"""The key of a planned stage: its identity with external content looked up and salts worked in."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelines.spec.diagnostics import SpecError
from pipelines.spec.identity import ExternalIdentity, Identity, StoredIdentity, identity_payload, key_of, split_salt
from pipelines.spec.nodes import CacheMode, ExternalSource, Pipeline, StageNode
from pipelines.spec.planned import Plan, PlannedNode
from pipelines.spec.selection import Selection
from pipelines.spec.strict_identity import strict_part
from stages.catalog import STAGES
from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.resolve import resolve
from stages.store.conditional import ConditionalStore
from stages.store.salts import read_salt, salted_keys, write_salt

REFRESH_SALT = "run "
"""What the salt of a refreshed stage begins with; the run's id follows."""


def refresh_salt(run_id: str) -> str:
    """What makes the key of a refreshed stage one of this run's own."""
    return f"{REFRESH_SALT}{run_id}"


@dataclass(frozen=True)
class Identified:
    """What a stage is.

    Attributes:
        key: the hash of `payload`.
        payload: what the result depends on.
        sources: the external content among it, by URI.
        salt: what makes the key one of this run's own.
    """

    key: str
    payload: bytes
    sources: Mapping[str, SourceRef]
    salt: str | None

    def of(self, planned: PlannedNode) -> PlannedNode:
        """A decision, with the identity that it is about."""
        return replace(planned, key=self.key, payload=self.payload, sources=self.sources, salt=self.salt)


class StageKeys:
    """Makes the keys of one plan; every external source is looked up once, for all plans of a run."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: ConditionalStore,
        selection: Selection,
        run_id: str | None,
        before: Plan | None,
    ) -> None:
        """Without `run_id` the key of a stage that makes a new result in every run is not known."""
        self._folder = pipeline.path.absolute().parent
        self._store = store
        self._selection = selection
        self._run_id = run_id
        self._before: Mapping[str, PlannedNode] = {} if before is None else before.nodes
        self._resolved = {uri: ref for planned in self._before.values() for uri, ref in planned.sources.items()}
        self._salted = salted_keys(store)

    def why_unknown(self, node: StageNode) -> str | None:
        """Why a stage has no key yet, apart from its inputs."""
        mode = self._mode(node)
        return None if mode == "use" or self._run_id is not None else f"cache {mode}: {node.id} runs again in each run"

    def identify(self, node: StageNode, stored: Mapping[str, StoredIdentity]) -> Identified:
        """The identity of a stage; `stored` are those of its inputs that stages made.

        Raises:
            SpecError: an external input cannot be found, told with its place.
        """
        sources: dict[str, SourceRef] = {}
        inputs = {name: stored.get(name) or self._external(node, name, sources) for name in node.inputs}
        strict = self._strict(node) if node.identity == "strict" else None
        identity = Identity(node.kind, STAGES[node.kind].version, node.rev, node.config, inputs, strict)

        def digest_of(uri: str) -> str:
            sources[uri] = self._resolve(uri)
            return sources[uri].digest

        run_salt = self._run_salt(node)
        try:
            payload = identity_payload(identity, digest_of)
            salt = run_salt or self._lasting_salt(node, payload)
            if salt is not None:
                payload = identity_payload(identity, digest_of, salt)
        except UserError as error:
            raise SpecError.at(node.place, str(error), ("stages", node.id, "with")) from error
        return Identified(key_of(payload), payload, sources, run_salt)

    def _strict(self, node: StageNode) -> dict[str, str]:
        if node.resources.python is not None:
            message = "`identity: strict` needs the interpreter that runs the pipeline: leave `resources.python` out"
            raise SpecError.at(node.place, message, ("stages", node.id))
        return strict_part(node.kind, node.resources)

    def _mode(self, node: StageNode) -> CacheMode:
        """A stage that is left out is taken as any run left it."""
        if node.id not in self._selection.chosen:
            return "use"
        return "refresh" if node.id in self._selection.refresh else node.cache

    def _run_salt(self, node: StageNode) -> str | None:
        match self._mode(node):
            case "use":
                return None
            case "refresh":
                assert self._run_id is not None, "`why_unknown` looks first"
                return refresh_salt(self._run_id)
            case "off":
                known = self._before.get(node.id)
                return (known and known.salt) or f"once {uuid.uuid4().hex}"

    def _lasting_salt(self, node: StageNode, plain: bytes) -> str | None:
        """What `--force` gave the stage; a run goes on with that of its first plan, whoever forces the stage since."""
        known = self._before.get(node.id)
        if known is not None and known.payload is not None:
            unsalted, salt = split_salt(known.payload)
            if unsalted == plain:
                return salt
        plain_key = key_of(plain)
        if node.id in self._selection.force:
            self._salted |= {plain_key}
            return write_salt(self._store, plain_key)
        return read_salt(self._store, plain_key) if plain_key in self._salted else None

    def _external(self, node: StageNode, name: str, sources: dict[str, SourceRef]) -> ExternalIdentity:
        value = node.inputs[name]
        assert isinstance(value, ExternalSource), "what stages made is given"
        try:
            sources[value.uri] = self._resolve(value.uri)
        except UserError as error:
            raise SpecError.at(value.place, str(error), ("stages", node.id, "inputs", name)) from error
        return ExternalIdentity(sources[value.uri].digest)

    def _resolve(self, uri: str) -> SourceRef:
        if uri not in self._resolved:
            self._resolved[uri] = resolve(uri, self._folder)
        return self._resolved[uri]
