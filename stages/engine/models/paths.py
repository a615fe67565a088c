"""How a weight is named by its place among the modules."""

from collections.abc import Iterable


def dotted(path: Iterable[object]) -> str:
    """A path of the module tree as one name, such as `blocks.mlp.up_proj.kernel`."""
    return ".".join(map(str, path))
