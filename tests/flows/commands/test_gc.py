"""`temper gc`, on a store with stages that were made by hand."""

from pathlib import Path

import pytest
from made_stages import commit, paths_of

from flows.cli import main
from stages.store.aliases import AliasRecord, AliasTarget, set_alias
from stages.store.local import LocalStore
from stages.store.manifest import read_manifest_file
from stages.store.marker import ensure_marker

PIPELINE = """\
version: 1
name: weekly
store: {store}
stages:
  data: {{uses: prepare, with: {{source: "reasoning_gym://chain_sum", num_train: 8, num_held_out: 4, seed: 1}}}}
"""


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "weekly.yaml").write_text(PIPELINE.format(store=tmp_path / "store"))
    store = LocalStore(tmp_path / "store")
    ensure_marker(store)
    return store


def gc(store: LocalStore, *flags: str) -> int:
    return main(["gc", str(store.root.parent / "weekly.yaml"), *flags])


def state(store: LocalStore) -> str:
    found = read_manifest_file(store, paths_of("a"))
    assert found is not None
    return found.content.state


def test_a_dry_run_says_what_would_go_and_changes_nothing(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(store, paths_of("a"), files={"w": b"x" * 2_000_000})
    assert gc(store, "--dry-run") == 0
    text = capsys.readouterr().out
    assert "0 stages are needed" in text
    assert "condemned now" in text
    assert f"sft {paths_of('a').key[:16]}  3 objects, 2,000,010 bytes\n" in text
    assert text.endswith("nothing was changed: this was a dry run\n")
    assert state(store) == "committed"


def test_two_runs_with_the_grace_between_them_delete_what_nothing_needs(
    store: LocalStore, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(store, paths_of("a"))
    assert gc(store) == 0
    assert "condemned 1 results, deleted 0 objects" in capsys.readouterr().out
    assert gc(store, "--grace", "7d") == 0
    assert state(store) == "condemned"
    assert gc(store, "--grace", "0s", "--price-per-gb-month", "1000000000") == 0
    assert "deleted: 3 objects, 11 bytes, 11.00 a month" in capsys.readouterr().out
    assert state(store) == "swept"


def test_what_keeps_stages_is_told(store: LocalStore, capsys: pytest.CaptureFixture[str]) -> None:
    commit(store, paths_of("rows"))
    commit(store, paths_of("model"), [paths_of("rows")])
    target = AliasTarget(stage="sft", key=paths_of("model").key, output="checkpoint", manifest_generation="1")
    set_alias(store, AliasRecord(name="prod", checkpoint=target, set_by="me", set_at="now"), None)
    assert gc(store) == 0
    told = "2 stages are needed: alias prod 1; the others are what these were made from\n"
    assert told in capsys.readouterr().out


def test_a_folder_that_is_no_store_and_a_time_that_is_none_are_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "weekly.yaml"
    file.write_text(PIPELINE.format(store=tmp_path / "other"))
    assert main(["gc", str(file)]) == 2
    assert "missing, so this may be no store" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["gc", str(file), "--grace", "soon"])
    assert ended.value.code == 2
    assert "'soon': expected a duration such as" in capsys.readouterr().err
