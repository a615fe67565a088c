"""Loads a pipeline file: text, profile and overrides in, checked nodes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.spec.build import build_pipeline
from pipelines.spec.diagnostics import Place, Problems, did_you_mean
from pipelines.spec.extends import read_with_bases
from pipelines.spec.nodes import Pipeline
from pipelines.spec.overlay import apply_overrides, apply_profile
from pipelines.spec.sections import OverlaySection
from pipelines.spec.tree import Entry, Table, Tree
from pipelines.spec.validation import validate


@dataclass(frozen=True)
class Loaded:
    """A pipeline and the text that it was made of.

    Attributes:
        pipeline: checked.
        tree: the file with profile and overrides over it, references still in it.
        profile: what the profile says, if one was chosen.
    """

    pipeline: Pipeline
    tree: Table
    profile: Tree | None


def load_pipeline(path: Path, profile: str | None = None, overrides: Sequence[str] = ()) -> Pipeline:
    """The pipeline in a file, with a profile over it and `a.b=VALUE` overrides over that.

    Raises:
        SpecError: the file cannot be read or is no valid pipeline; all that was found stands in it.
    """
    return load_with_text(path, profile, overrides).pipeline


def load_with_text(path: Path, profile: str | None = None, overrides: Sequence[str] = ()) -> Loaded:
    """The pipeline of `load_pipeline` with the text that it was made of.

    Every other profile is checked as well, each over the file and the overrides of parameters.

    Raises:
        SpecError: the file cannot be read or is no valid pipeline; all that was found stands in it.
    """
    problems = Problems()
    tree = read_with_bases(path, problems)
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
    pipeline = replace(pipeline, overrides=tuple(overrides))
    return Loaded(pipeline, chosen, profiles[profile].value if profile else None)


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
