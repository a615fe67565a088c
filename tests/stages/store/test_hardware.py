from pathlib import Path

from stages.store.hardware import describe_hardware
from stages.store.provenance import collect_provenance


def test_a_machine_is_described_by_what_it_shows_of_itself(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       25165824 kB\nMemFree: 1 kB\n")
    for n in range(2):
        folder = tmp_path / "driver" / "nvidia" / "gpus" / f"0000:0{n}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t 1\n")
    dev = tmp_path / "dev"
    dev.mkdir()
    for n in range(4):
        (dev / f"accel{n}").touch()
    described = describe_hardware(tmp_path, dev)
    assert described.endswith(" CPUs, 24 GiB, 2 x NVIDIA H200, 4 TPU chips")


def test_what_a_machine_does_not_show_is_left_out(tmp_path: Path) -> None:
    assert describe_hardware(tmp_path, tmp_path).endswith(" CPUs")


def test_a_record_of_where_a_result_was_made_has_the_machine() -> None:
    assert collect_provenance().hardware == describe_hardware()
