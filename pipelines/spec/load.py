"""Loads a pipeline file: text, profile and overrides in, checked nodes out."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.spec.build import build_pipeline
from pipelines.spec.diagnostics import Place, Problems, SpecError, did_you_mean
from pipelines.spec.nodes import Pipeline
from pipelines.spec.overlay import apply_overrides, apply_profile
from pipelines.spec.sections import OverlaySection
from pipelines.spec.tree import Entry, Table
from pipelines.spec.validation import validate
from pipelines.spec.yaml_text import MAX_BYTES, read_yaml


def load_pipeline(path: Path, profile: str | None = None, overrides: Sequence[str] = ()) -> Pipeline:
    """The pipeline in a file, with a profile over it and `a.b=VALUE` overrides over that.

    Every other profile is checked as well, each over the file and the overrides of parameters.

    Raises:
        SpecError: the file cannot be read or is no valid pipeline; all that was found stands in it.
    """
    problems = Problems()
    tree = _read(path, problems)
    profiles = _profiles(tree)
    if profile is not None and profile not in profiles:
        known = did_you_mean(profile, profiles) or f"; the file has {_listed(list(profiles))}"
        problems.add(Place(f"--profile {profile}"), (), f"unknown profile `{profile}`{known}")
    chosen = _variant(tree, profiles.get(profile) if profile else None, problems)
    chosen = apply_overrides(chosen, list(overrides), problems)
    pipeline = build_pipeline(chosen, path, profile, profiles, problems)
    params = [override for override in overrides if override.startswith("params.")]
    for name in profiles:
        if name != profile:
            _check_profile(tree, path, name, profiles, params, problems)
    problems.raise_if_any()
    assert pipeline is not None, "a pipeline that is not built was reported"
    return pipeline


def _read(path: Path, problems: Problems) -> Table:
    tree = read_yaml(_text(path), lambda line, column: Place(str(path), line + 1, column + 1), problems)
    if tree is not None and not isinstance(tree, Table):
        problems.add(Place(str(path), 1, 1), (), "not a pipeline: expected a mapping that starts with `version: 1`")
    if not isinstance(tree, Table):
        raise SpecError(problems.found)
    return tree


def _text(path: Path) -> str:
    start = Place(str(path), 1, 1)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError.at(start, f"larger than {MAX_BYTES // 1024} KiB, which no pipeline is")
        data = path.read_bytes()
    except OSError as error:
        raise SpecError.at(start, f"cannot be read: {(error.strerror or str(error)).lower()}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", errors="replace")) + 1
        place = Place(str(path), before.count(b"\n") + 1, column)
        raise SpecError.at(place, f"not text: the byte 0x{data[error.start]:02x} is not UTF-8") from error


def _profiles(tree: Table) -> dict[str, Entry]:
    profiles = tree.get("profiles")
    return dict(profiles.entries) if isinstance(profiles, Table) else {}


def _variant(tree: Table, profile: Entry | None, problems: Problems) -> Table:
    if profile is None or not isinstance(profile.value, Table):
        return tree.without("profiles")
    return apply_profile(tree, profile.value, problems)


def _check_profile(
    tree: Table, path: Path, name: str, profiles: Mapping[str, Entry], params: list[str], problems: Problems
) -> None:
    found, entry = Problems(), profiles[name]
    validate(OverlaySection, entry.value, ("profiles", name), found, entry.key_place)
    build_pipeline(apply_overrides(_variant(tree, entry, found), params, found), path, name, profiles, found)
    problems.extend(found)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else "no profiles"
