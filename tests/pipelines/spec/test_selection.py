"""Names of nodes on the command line."""

from pathlib import Path

import pytest

from pipelines.spec.load import load_pipeline
from pipelines.spec.nodes import Pipeline
from pipelines.spec.selection import select
from stages.errors import UserError


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A sweep over two axes."""
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "version: 1\nname: sweep\nstages:\n"
        "  data:\n    uses: prepare\n    matrix: {num_train: [8, 16], seed: [1, 10]}\n"
        "    with: {source: rows.jsonl, num_train: '${matrix.num_train}', num_held_out: 4, seed: '${matrix.seed}'}\n"
    )
    return load_pipeline(file)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("data", {"8,seed=1", "8,seed=10", "16,seed=1", "16,seed=10"}),
        ("data[num_train=8,seed=10]", {"8,seed=10"}),
        ("data[seed=10, num_train=8]", {"8,seed=10"}),
        ("data[seed=1]", {"8,seed=1", "16,seed=1"}),
    ],
)
def test_a_name_stands_for_a_group_or_for_those_with_its_values(
    name: str, chosen: set[str], pipeline: Pipeline
) -> None:
    expected = {f"data[num_train={values}]" for values in chosen}
    assert set(select(pipeline, [name], None).chosen) == expected


@pytest.mark.parametrize("name", ["data[seed=2]", "data[]", "data[lr=1]", "other[seed=1]"])
def test_a_name_that_stands_for_nothing_is_refused(name: str, pipeline: Pipeline) -> None:
    with pytest.raises(UserError, match="no stage of sweep"):
        select(pipeline, [name], None)
