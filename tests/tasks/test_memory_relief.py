"""Settings that are divided when memory runs out."""

from temper_probe import ProbeConfig

from pipelines.spec.identity import Identity, identity_payload
from stages.store.attempts import AttemptRecord
from stages.store.holder import this_holder
from tasks.memory_relief import lowered_settings, relief, with_settings

CONFIG = ProbeConfig(width=9, save_every_steps=2)
DIVISORS = {"width": 2}


def record(cause: str, lowered: dict[str, int], run_id: str = "run-1") -> AttemptRecord:
    return AttemptRecord(
        attempt="000001-a",
        holder=this_holder(),
        started="2026-01-02T12:00:00+00:00",
        run_id=run_id,
        outcome="failed",
        cause=cause,
        lowered=lowered,
    )


def lowered(*history: AttemptRecord, divisors: dict[str, int] = DIVISORS) -> dict[str, int]:
    return lowered_settings(CONFIG, divisors, history, "run-1")


def test_the_first_attempt_of_a_run_has_the_settings_of_the_file() -> None:
    assert lowered() == {}
    assert lowered(record("oom", {"width": 2}, run_id="run-0")) == {}


def test_each_want_of_memory_divides_once_more_and_never_below_one() -> None:
    seen, history = [], [record("oom", {})]
    for _ in range(5):
        seen.append(lowered(*history))
        history.insert(0, record("oom", seen[-1]))
    assert [step["width"] for step in seen] == [4, 2, 1, 1, 1]


def test_what_was_lowered_stays_for_the_run_whatever_ends_the_next_attempt() -> None:
    assert lowered(record("preempted", {"width": 4}), record("oom", {})) == {"width": 4}
    assert lowered(record("infra", {}, "run-0"), record("infra", {"width": 4})) == {"width": 4}


def test_an_attempt_that_ended_while_it_waited_for_devices_lowers_and_raises_nothing() -> None:
    assert lowered(record("stopped", {}), record("infra", {"width": 4}), record("oom", {})) == {"width": 4}
    assert lowered(record("fenced", {}), record("oom", {"width": 4})) == {"width": 2}


def test_several_settings_have_a_divisor_each() -> None:
    assert lowered(record("oom", {}), divisors={"width": 3, "save_every_steps": 2}) == {
        "width": 3,
        "save_every_steps": 1,
    }


def test_relief_is_told_until_there_is_none() -> None:
    assert relief(CONFIG, DIVISORS, {}) == "width 9 → 4"
    assert relief(CONFIG, DIVISORS, {"width": 1}) is None
    assert relief(CONFIG, {"width": 2, "save_every_steps": 4}, {"width": 1}) == "save_every_steps 2 → 1"


def test_lowered_settings_leave_the_identity_as_it_is() -> None:
    smaller = with_settings(CONFIG, {"width": 4})
    assert smaller == CONFIG.model_copy(update={"width": 4})
    one, other = (identity_payload(Identity("probe", 1, 0, config, {}), str) for config in (smaller, CONFIG))
    assert one == other
