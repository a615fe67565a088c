import sys
from pathlib import Path

import pytest

from stages.contract import SourceRef
from stages.errors import UserError
from stages.sources.reasoning_gym import parse
from stages.sources.resolve import check, digest, open_source

HERE = Path()


def test_parameters_are_typed_as_json_and_else_text() -> None:
    task = parse('reasoning_gym://chain_sum?max_terms=2&p=0.5&allow_negation=true&ops=["%2B","-"]&style=plain')
    assert task.name == "chain_sum"
    assert dict(task.params) == {
        "max_terms": 2,
        "p": 0.5,
        "allow_negation": True,
        "ops": ["+", "-"],
        "style": "plain",
    }


def test_the_order_of_parameters_is_not_identity_but_their_values_are() -> None:
    one = digest("reasoning_gym://chain_sum?a=1&b=2", HERE)
    assert digest("reasoning_gym://chain_sum?b=2&a=1", HERE) == one
    others = (
        "chain_sum?a=1&b=3",
        "chain_sum?a=1",
        "chain_sum?a=1&b=true",
        "chain_sum?a=1&b=2.0",
        "leg_counting?a=1&b=2",
    )
    assert len({digest(f"reasoning_gym://{other}", HERE) for other in others} | {one}) == 6


def test_the_digest_holds_the_packages_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("reasoning_gym://chain_sum", HERE)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0.1")
    assert digest("reasoning_gym://chain_sum", HERE) != before


def test_identity_needs_no_import_of_the_package() -> None:
    loaded = "reasoning_gym" in sys.modules
    digest("reasoning_gym://chain_sum?max_terms=2", HERE)
    assert ("reasoning_gym" in sys.modules) == loaded


def test_there_is_no_file_to_open(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="problems are generated"):
        open_source(SourceRef(uri="reasoning_gym://chain_sum", digest="sha256:0"), tmp_path)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("reasoning_gym://", "expected reasoning_gym://task"),
        ("reasoning_gym://Chain Sum", "expected reasoning_gym://task"),
        ("reasoning_gym://chain_sum?a", "expected parameter=value"),
        ("reasoning_gym://chain_sum?a=1&a=2", "'a' stands twice"),
        ("reasoning_gym://chain_sum?seed=3", "'seed' is a setting of the stage"),
        ("reasoning_gym://chain_sum?p=NaN", "NaN is no parameter"),
        ("reasoning_gym://chain_sum?p=1e999", "1e999 is no parameter"),
        ("reasoning_gim://chain_sum", r"unknown scheme 'reasoning_gim'.*did you mean reasoning_gym://"),
        (
            "s3://bucket/key",
            "unknown scheme 's3', expected a path or one of package://, hf://, gs://, reasoning_gym://",
        ),
        ("  ", "expected the path"),
    ],
)
def test_a_wrong_form_says_what_was_expected(uri: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(uri)
