"""A worker does not start beside a run that lives and was signed with a key it lacks."""

import pytest
from django.utils import timezone

from runtime.keyring import files, purposes
from runtime.models import Run
from runtime.upkeep import startup
from tests.support.engine import MakeBench
from tests.support.fake_ports import FakeTool, ask, say, turns


@pytest.mark.parametrize("suspended", [True, False])
def test_a_key_that_a_live_run_needs_is_named(
    rig: MakeBench, suspended: bool, continued: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.start("a")
    if suspended:
        assert desk.advance(run).status == "suspended"
    startup.require_keys_of_live_runs()
    purpose = purposes.CONTINUATION if suspended else purposes.JOURNAL
    used = files.ids(purpose)[0]
    monkeypatch.setattr(files, "ids", lambda purpose: ("another",))
    needed = f"key '{used}' for {purpose} is not in the ring, and run {run}"
    with pytest.raises(SystemExit, match=needed):
        startup.require_keys_of_live_runs()
    # A continuation goes with the last step of its run; here one is left.
    Run.objects.filter(id=run).update(status="cancelled", ended_at=timezone.now(), due_at=None)
    startup.require_keys_of_live_runs()


def test_a_worker_starts_despite_too_many_live_runs(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = rig({"a": turns(say("done"))})
    desk.start("a")
    monkeypatch.setattr(startup, "CHECK_SECONDS", "1ms")
    slow = "SELECT key_id, run_id AS run FROM runtime_journalentry, pg_sleep(60)"
    monkeypatch.setattr(startup, "_LIVE", {purposes.JOURNAL: slow})
    startup.require_keys_of_live_runs()
    assert "Keys of journal: not checked for all live runs" in caplog.text
