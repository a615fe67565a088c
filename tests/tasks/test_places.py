from pathlib import Path

import pytest

from stages.store.holder import Holder, this_holder
from tasks import places


def test_hosts_that_share_a_home_do_not_wait_for_each_others_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    here = places.locks_dir()
    assert here.is_relative_to(tmp_path)
    assert here == places.locks_dir()

    def elsewhere(run_url: str | None = None) -> Holder:
        return this_holder(run_url).model_copy(update={"boot_id": "another kernel"})

    monkeypatch.setattr(places, "this_holder", elsewhere)
    assert places.locks_dir() != here
