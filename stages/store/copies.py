"""Results that were copied with their store: the same bytes, at other generations."""

from contextlib import suppress

from stages.store.conditional import ConditionalStore, PreconditionFailed
from stages.store.manifest import Manifest, read_manifest_file
from stages.store.records import encode


def adopt_copies(store: ConditionalStore, manifest: Manifest) -> Manifest:
    """Write into a committed manifest the generations that its files have now, and return it.

    For a store that was copied from elsewhere, after `check_files(..., deep=True)` found every byte as committed.
    """
    listed = store.list(manifest.paths.attempt(manifest.attempt).outputs)
    generations = {found.path: found.generation for found in listed}
    outputs = {
        output: tuple(
            entry.model_copy(update={"generation": generations[f"{manifest.output_folder(output)}/{entry.path}"]})
            for entry in entries
        )
        for output, entries in manifest.outputs.items()
    }
    adopted = manifest.model_copy(update={"outputs": outputs})
    found = read_manifest_file(store, manifest.paths)
    if found is not None and found.content == manifest and adopted != manifest:
        with suppress(PreconditionFailed):
            store.swap(manifest.paths.manifest, encode(adopted), found.stored.generation)
    return adopted
