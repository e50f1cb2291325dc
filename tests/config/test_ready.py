"""What each process has done before it says that it is ready."""

from collections.abc import Callable

import pytest
from django.core.management import call_command

from config import celery, wiring
from runtime.core.documents import codec, continuations
from runtime.core.run.events import EVENT_TYPES
from runtime.upkeep import startup, sweeper


def start_web() -> None:
    from config import web

    web.main(["--bind", "127.0.0.1:0"])


@pytest.mark.filterwarnings("ignore:No directory at")  # static files, as the module is imported
@pytest.mark.parametrize(
    "start",
    [start_web, celery._equip, lambda: call_command("sweep")],
    ids=["web", "worker", "sweeper"],
)
def test_a_process_reads_and_writes_documents_before_it_is_ready(
    start: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ready(BaseException):
        """The process would say that it is ready."""

    def say_ready(*_: object, **__: object) -> None:
        raise Ready

    for name in ("database", "broker", "keys", "durable_stores", "keys_of_live_runs"):
        monkeypatch.setattr(startup, f"require_{name}", lambda **_: None)
    monkeypatch.setattr(wiring, "connect_effects", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("PGAPPNAME", "tests")
    monkeypatch.setattr("config.celery._collect_from_here", say_ready)
    monkeypatch.setattr("uvicorn.Server.run", say_ready)
    monkeypatch.setattr(sweeper, "run", say_ready)
    caches = (codec._entries, continuations._continuations, codec._events_of)
    for cache in caches:
        cache.cache_clear()
    with pytest.raises(Ready):
        start()
    assert [cache.cache_info().currsize for cache in caches] == [1, 1, len(EVENT_TYPES)]
