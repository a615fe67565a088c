"""Figures of the device that the tests run on."""

import logging

import jax
import pytest

from stages.engine.cluster.peak import memory_gib, peak_flops


@pytest.fixture(autouse=True)
def fresh() -> None:
    peak_flops.cache_clear()


def test_an_unknown_device_is_measured_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stages"):
        found = peak_flops()
    assert 1e8 < found < 1e14
    assert "measured peak" in caplog.text
    assert peak_flops() == found, "it is measured once"


@pytest.mark.parametrize(
    ("kind", "peak"), [("NVIDIA H200", 989e12), ("NVIDIA L40S", 362e12), ("TPU v5 lite", 197e12), ("TPU v5", 459e12)]
)
def test_a_known_device_has_its_published_figure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, peak: float
) -> None:
    class Device:
        device_kind = kind

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    with caplog.at_level(logging.INFO, "stages"):
        assert peak_flops() == peak
    assert "published peak" in caplog.text


def test_memory_is_that_of_the_device_or_else_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.05 < memory_gib() < 100

    class Device:
        def __init__(self, peak: int) -> None:
            self._peak = peak

        def memory_stats(self) -> dict[str, int]:
            return {"peak_bytes_in_use": self._peak}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device(2**30), Device(3 * 2**30)])
    assert memory_gib() == 3.0
