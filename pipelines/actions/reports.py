"""Evaluation reports as gates and pages read them: metrics, and the samples that they are the means of."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue, TypeAdapter, ValidationError

from stages.contract import ARTIFACT_FILE, FileEntry, ReportArtifact
from stages.errors import StorageError
from stages.store.checksum import bytes_crc32c
from stages.store.conditional import ConditionalStore, CorruptObjectError
from stages.store.manifest import Manifest

_ROW = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        metrics: by name.
        samples: rows by id; the numbers of a column are the samples of the metric of that name.
    """

    metrics: Mapping[str, float]
    samples: Mapping[str, Mapping[str, JsonValue]]

    def column(self, metric: str) -> dict[str, float]:
        """The samples of a metric by id; empty when the rows have no such numbers."""
        values = {key: row.get(metric) for key, row in self.samples.items()}
        numbers = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
        return numbers if len(numbers) == len(values) else {}


def read_report(store: ConditionalStore, manifest: Manifest, output: str, cache: Path) -> Report:
    """The report in an output of a committed stage; `cache` takes copies of files that are not local.

    Raises:
        StorageError: a file cannot be read, is damaged, or holds no report.
    """
    descriptor = _fetch(store, manifest, output, ARTIFACT_FILE, cache)
    artifact = _artifact(str(descriptor), descriptor.read_bytes())
    if artifact.samples_file is None:
        return Report(artifact.metrics, {})
    return Report(artifact.metrics, _rows(_fetch(store, manifest, output, artifact.samples_file, cache)))


def read_metrics(store: ConditionalStore, manifest: Manifest, output: str) -> Report:
    """The report in an output of a committed stage, without its samples and without a copy on disk.

    Raises:
        StorageError: the file cannot be read, is damaged, or holds no report.
    """
    path = f"{manifest.output_folder(output)}/{ARTIFACT_FILE}"
    entry = _entry(store, manifest, output, ARTIFACT_FILE)
    stored = store.get(path)
    if stored is None or bytes_crc32c(stored.data) != entry.crc32c:
        what = "is gone" if stored is None else "was changed since"
        raise CorruptObjectError(f"{store.location(path)}: was committed and {what}; `--verify deep` has it made again")
    return Report(_artifact(store.location(path), stored.data).metrics, {})


def _artifact(where: str, data: bytes) -> ReportArtifact:
    try:
        return ReportArtifact.model_validate_json(data)
    except ValidationError as error:
        raise StorageError(f"{where}: holds no report: {error.errors()[0]['msg']}") from error


def _entry(store: ConditionalStore, manifest: Manifest, output: str, name: str) -> FileEntry:
    entry = next((entry for entry in manifest.files_of(output) if entry.path == name), None)
    if entry is None:
        folder = manifest.output_folder(output)
        raise StorageError(f"{store.location(folder)}: the committed output has no {name}")
    return entry


def _fetch(store: ConditionalStore, manifest: Manifest, output: str, name: str, cache: Path) -> Path:
    entry = _entry(store, manifest, output, name)
    source = f"{manifest.output_folder(output)}/{name}"
    return store.fetch(source, entry, cache / manifest.key / manifest.attempt / output / name)


def _rows(file: Path) -> dict[str, dict[str, JsonValue]]:
    rows: dict[str, dict[str, JsonValue]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = _ROW.validate_json(line)
        except ValidationError as error:
            raise StorageError(f"{file}:{number}: no JSON object") from error
        key = row.get("id")
        if not isinstance(key, str) or key in rows:
            raise StorageError(f"{file}:{number}: expected a text `id` that no other row has")
        rows[key] = row
    return rows
