import subprocess
import sys

from stages.store.holder import Holder, is_gone, this_holder

PRINT_HOLDER = (
    "from stages.store.holder import this_holder; print(this_holder().model_dump_json(), flush=True); input()"
)


def start() -> tuple[subprocess.Popen[str], Holder]:
    child = subprocess.Popen(
        [sys.executable, "-c", PRINT_HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    return child, Holder.model_validate_json(child.stdout.readline())


def test_a_living_process_of_this_machine_is_not_gone() -> None:
    child, holder = start()
    try:
        assert not is_gone(holder, this_holder())
    finally:
        child.kill()
        child.wait()


def test_a_killed_process_is_gone_even_before_it_is_reaped() -> None:
    child, holder = start()
    child.kill()
    # Waits until it has ended, and leaves it a zombie.
    child.stdout.read()  # type: ignore[union-attr]
    for _ in range(1000):
        if is_gone(holder, this_holder()):
            break
    assert is_gone(holder, this_holder())
    child.wait()
    assert is_gone(holder, this_holder())


def test_a_later_process_with_the_same_number_is_not_the_holder() -> None:
    assert is_gone(this_holder().model_copy(update={"pid_start": "1"}), this_holder())


def test_nobody_knows_about_processes_elsewhere() -> None:
    ended = this_holder().model_copy(update={"pid_start": "1"})
    for field in ("host", "boot_id", "pid_namespace"):
        assert not is_gone(ended.model_copy(update={field: "another"}), this_holder())


def test_where_the_system_tells_nothing_nothing_is_concluded() -> None:
    for field in ("boot_id", "pid_namespace", "pid_start"):
        unknown = this_holder().model_copy(update={"pid": 2**22 + 1, field: ""})
        assert not is_gone(unknown, unknown)
