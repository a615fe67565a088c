"""Where a pipeline file may name a secret: nowhere that enters identities, plans or records."""

from pipelines.spec.diagnostics import KeyPath, Place, Problems
from pipelines.spec.scope import Area, area_of
from pipelines.spec.tree import Items, Scalar, Table, Tree
from stages.secrets import REFERENCE, is_secret


def refuse_secrets(tree: Tree, path: KeyPath, problems: Problems, place: Place | None = None) -> None:
    """Report each `secret://NAME` that stands elsewhere than in `resources.env` and `notify.to`."""
    match tree:
        case Scalar(value=str() as text) if is_secret(text):
            if area_of(path) is not Area.RUN_TEXT:
                message = f"`{text}` can stand in `resources.env` and in `notify.to` only: secrets enter no identity"
                problems.add(place or tree.place, path, message)
            elif not REFERENCE.fullmatch(text):
                problems.add(place or tree.place, path, f"expected secret:// and a name, not `{text}`")
        case Scalar():
            pass
        case Items(values=values):
            for index, value in enumerate(values):
                refuse_secrets(value, (*path, index), problems, value.place)
        case Table(entries=entries):
            for key, entry in entries.items():
                refuse_secrets(entry.value, (*path, key), problems, entry.key_place)
