"""Results as people name them: an alias, the beginning of a key, `key/output`, or the digest of a source."""

import re

from stages.contract import SourceRef
from stages.errors import UserError
from stages.store.aliases import is_alias_name, read_alias
from stages.store.conditional import ConditionalStore
from stages.store.lineage import Origin
from stages.store.survey import Survey

SHORTEST_PREFIX = 8
_KEY = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},64}}")
_DIGEST = re.compile(r"[a-z0-9_-]+:[A-Za-z0-9./_=-]+")


def find_target(store: ConditionalStore, found: Survey, text: str) -> Origin:
    """The output, the stage or the source that `text` names.

    Raises:
        UserError: it names nothing in the store, or more than one stage.
    """
    name, _, output = text.partition("/")
    if _DIGEST.fullmatch(text):
        return Origin(source=SourceRef(uri="", digest=text))
    alias = read_alias(store, text) if is_alias_name(text) else None
    if alias is not None:
        return Origin(key=alias[0].checkpoint.key, output=alias[0].checkpoint.output)
    if _KEY.fullmatch(name):
        return Origin(key=_only_key(found, name), output=output or None)
    raise UserError(
        f"'{text}': no stage of the pipeline, no alias of {store.uri}, no key of at least {SHORTEST_PREFIX} characters "
        "and no digest such as sha256:…"
    )


def _only_key(found: Survey, prefix: str) -> str:
    keys = sorted(key for key in found.stages if key.startswith(prefix))
    if not keys:
        raise UserError(f"'{prefix}': the store has no stage whose key begins so")
    if len(keys) > 1:
        several = ", ".join(f"{found.stages[key].paths.kind} {key[:16]}" for key in keys[:5])
        raise UserError(f"'{prefix}': {len(keys)} keys begin so ({several}); write more of it")
    return keys[0]
