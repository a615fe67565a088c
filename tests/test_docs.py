"""The documents tell the truth: their paths exist, their links lead somewhere, their pipeline is valid."""

import re
from pathlib import Path

import pytest

from flows.cli import EPILOG
from pipelines.spec.diagnostics import SpecError
from pipelines.spec.load import load_pipeline

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "infra/README.md")] + sorted(
    (ROOT / "docs").glob("*.md")
)
EVERY_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
PATH = re.compile(r"`((?:flows|tasks|stages|pipelines|tests|infra|docs)/[\w./]*)`")


@EVERY_DOCUMENT
def test_paths_in_a_document_exist(document: Path):
    named = [path for path in PATH.findall(document.read_text()) if not (ROOT / path).exists()]
    assert named == []


@EVERY_DOCUMENT
def test_links_in_a_document_lead_to_files(document: Path):
    links = re.findall(r"\]\((?!https?://)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def readme_pipeline() -> str:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return block


def test_the_pipeline_in_the_readme_is_valid_under_every_profile(tmp_path: Path):
    file = tmp_path / "my-first.yaml"
    file.write_text(readme_pipeline())
    assert list(load_pipeline(file).nodes) != []
    assert load_pipeline(file, profile="short").profile == "short"


def test_the_pipeline_in_the_guide_is_valid_under_every_profile(tmp_path: Path):
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "pipelines.md").read_text(), re.DOTALL)
    file = tmp_path / "sweep.yaml"
    file.write_text(block)
    for profile in (None, "laptop"):
        assert "sft[rate=0.001]" in load_pipeline(file, profile=profile).nodes


def test_the_mistake_in_the_readme_is_reported_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("my-first.yaml").write_text(readme_pipeline().replace("warmup_steps:", "warmup_step:"))
    with pytest.raises(SpecError) as raised:
        load_pipeline(Path("my-first.yaml"))
    shown = re.search(r"^my-first\.yaml:.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert shown
    assert str(raised.value) == shown.group()


def test_the_readme_and_the_help_list_the_same_exit_codes():
    listed = re.findall(r"^\| ([\d, ]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    helped = EPILOG.split("exit codes:")[1].split("environment:")[0]
    assert {code for cell in listed for code in cell.split(", ")} == set(re.findall(r"\b\d+\b", helped))
