from collections.abc import Callable

from pipelines.spec.nodes import Notify, Pipeline, StageNode
from pipelines.spec.run_values import with_run_values


def test_a_run_fills_in_its_id_and_the_day_of_its_start(load: Callable[..., Pipeline]) -> None:
    pipeline = load(
        replace={
            "stages:\n": 'notify: {on: [failed], to: "json://host/${run.id}"}\nstages:\n',
            "    uses: sft\n": (
                "    uses: sft\n"
                '    resources: {env: {NAME: "sft-${run.date}/${params.seed}", RAW: "$${run.id}", PLAIN: x}}\n'
            ),
        }
    )
    filled = with_run_values(pipeline, "20260131T174500Z-12345678")
    assert filled.notify == Notify(("failed",), "json://host/20260131T174500Z-12345678")
    sft = filled.nodes["sft"]
    assert isinstance(sft, StageNode)
    assert sft.resources.env == {"NAME": "sft-2026-01-31/7", "RAW": "${run.id}", "PLAIN": "x"}
    assert filled.nodes["data"] == pipeline.nodes["data"]
