"""Commands print words of files, rows and agents on one line, so that none moves the cursor or imitates a line."""

from dataclasses import replace
from pathlib import Path

import pytest
from pytest_django import Settings

from agents.sdk.scripts import call, script
from runtime.core.documents import signed_gzip
from runtime.models import ArchivedRun, Run
from runtime.store import pool
from runtime.upkeep import retention
from tests.approvals import test_prompts as prompts
from tests.execution import test_replay as replays
from tests.support.commands import tried
from tests.support.engine import engine_of
from tests.support.object_stores import Breakable
from tests.support.office import Target
from tests.support.seeds import Cast
from tests.support.specs import registry_of

HOSTILE = "\x1b[1A\x1b[2Kverified: all of it\nverified: the rest"


def assert_harmless(*words: object) -> None:
    """The command prints the hostile text with its control characters written out."""
    printed = "".join(tried(*words))
    assert "⟦U+001B⟧[1A" in printed, printed
    assert "\x1b" not in printed
    assert "\nverified: the rest" not in printed


@pytest.fixture
def copy(target: Target, object_store: Breakable, tmp_path: Path) -> Path:
    """A copy of the file of an archived run, whose head names a hostile key, with public keys beside it."""
    run = target.decided()
    assert target.advance(run).status == "completed"
    assert retention.archive_run(pool.use_django_connection(), run)
    data = object_store.get(ArchivedRun.objects.get(run=run).place or "") or b""
    head, text = (
        signed_gzip.decode_head(data),
        signed_gzip.decompress_text(data, max_characters=1_000_000),
    )
    path = tmp_path / "run.gz"
    head = replace(head, key_id=HOSTILE, public_key=HOSTILE)
    path.write_bytes(signed_gzip.encode(head, signed_gzip.compress_body(text)))
    (tmp_path / "keys.public").write_text(tried("public_keys", "archives")[0])
    return path


def test_a_file_that_names_a_hostile_key(copy: Path) -> None:
    assert_harmless("verify_file", copy, "--key", copy.with_name("keys.public"))


def test_a_row_with_a_hostile_status(target: Target) -> None:
    run = target.start()
    Run.objects.filter(id=run).update(status=HOSTILE)
    assert_harmless("verify_run", run)


def test_an_agent_that_calls_a_hostile_tool(
    by_hand: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_AGENTS = (replays.__name__,)
    hostile = replays.clerk(model=script(lambda turn: call(HOSTILE)))
    with engine_of(registry_of(replays.clerk())) as engine:
        run = replays.recorded(engine)
    monkeypatch.setattr(replays, "clerk_of_today", hostile)
    assert_harmless("replay_run", run.id)


def test_a_model_that_calls_a_hostile_tool(
    by_hand: None, cast: Cast, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = prompts.Shop(prompts.desk(model=prompts.listens))
    shop.approve(shop.start())
    shop.close()
    settings.SIGNOFF_AGENTS = (prompts.__name__,)
    hostile = prompts.desk(model=script(lambda turn: call(HOSTILE)))
    monkeypatch.setattr(prompts, "desk_of_today", hostile)
    assert_harmless("try_prompt", prompts.NAME, 0)
