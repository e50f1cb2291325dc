"""Fixtures for every test: its own servers and keys, without access to others."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from django.conf import settings
from django.db import connections
from hypothesis import HealthCheck
from kombu import pools

from agents.catalogue import published
from approvals.governance import allowance_uses, policies
from config import celery
from config.broker import transport
from config.env import environment
from runtime.keyring import files, purposes
from runtime.reads import time_limits
from runtime.store import pool
from runtime.store.tables import continuations
from tests.skips import Skips
from tests.support import embedded, servers
from tests.support.seeds import Cast, assemble

pytest_plugins = [
    "tests.support.elsewhere",
    "tests.support.engine",
    "tests.support.object_stores",
    "tests.support.office",
]


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Path]:
    """A folder for the whole session that servers under another account can reach."""
    folder = Path(tempfile.mkdtemp(prefix="signoff-tests-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session", autouse=True)
def _nobody_elses(sandbox: Path) -> None:
    """Point every setting at the sandbox, so that no test can reach what runs on this machine for real."""
    for name in ("keys", "static"):
        (sandbox / name).mkdir()
    settings.SECRET_KEY = "for tests only, long enough for everything that signs with it"
    settings.KEYS_DIR = sandbox / "keys"
    settings.SIGNOFF_UNDO_SECONDS = 0.0
    os.environ["SIGNOFF_UNDO_SECONDS"] = "0"  # for the processes that tests start
    settings.STATIC_ROOT = sandbox / "static"
    _use_broker(f"unix://{sandbox}/no-broker.sock")
    pool.WAIT_SECONDS = 60.0  # for a connection, also on a busy machine
    # A busy machine takes long for a page, and the first one of a process imports much.
    published.TITLES_SECONDS = time_limits.SOFT_SECONDS = time_limits.HARD_SECONDS = 3600.0
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.STORAGES = {
        **settings.STORAGES,
        # The real one asks for a manifest that only `manage.py prepare` makes.
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    for purpose in purposes.PURPOSES:
        files.ensure(purpose)


@pytest.fixture(scope="session")
def server_folder(sandbox: Path) -> Path:
    """A folder of the account under which the servers run; sockets and data go here."""
    return servers.own(sandbox / "servers")


@pytest.fixture(scope="session")
def postgres_url(sandbox: Path, server_folder: Path) -> Iterator[str]:
    """DATABASE_URL if it is given, else that of an embedded server that lives as long as the session."""
    with embedded.database(sandbox, server_folder) as url:
        yield url


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres_url: str) -> None:
    """pytest-django's hook to change the database settings before it makes the test database."""
    where = environment.read({"DATABASE_URL": postgres_url}).database
    # In place: connections of every thread share this dictionary.
    connections.settings["default"].update(where)
    connections["default"].settings_dict.update(where)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    with embedded.emptied_quickly():
        yield
    pool.close()  # or the test database cannot be dropped


@pytest.fixture(scope="session")
def broker_url(sandbox: Path, server_folder: Path) -> Iterator[str]:
    """The REDIS_URL of an embedded broker that lives as long as the session."""
    with servers.broker_of(sandbox, server_folder) as (url, _):
        yield url


@pytest.fixture
def live_broker(broker_url: str) -> Iterator[str]:
    """Settings and Celery point at a broker that answers; its REDIS_URL."""
    before = settings.REDIS_URL
    _use_broker(broker_url)
    yield broker_url
    _use_broker(before)


@pytest.fixture(autouse=True)
def _no_policy_of_another_test() -> None:
    """A process remembers for a moment the policy in force, the tools with an allowance and the titles of agents."""
    policies.forget()
    allowance_uses.forget()
    published.forget_titles()


@pytest.fixture
def cast(db: None) -> Cast:
    """Ada, Bea, Cyril and the admin, in the groups that the demo gives them."""
    return assemble()


@pytest.fixture
def continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a run a continuation by each of its steps, as if it was long."""
    monkeypatch.setattr(continuations, "needs_brief", lambda covered, tail, release: True)
    monkeypatch.setattr(continuations, "needs_rewrite", lambda covered, tail: True)


def pytest_collection() -> None:
    """Collect no garbage while tests are imported: almost everything stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what imports made from garbage collection, which took a tenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("CI"):
        config.pluginmanager.register(Skips(Path(__file__).with_name("skips.txt")))
    if hypothesis.settings.get_current_profile_name() == "default":  # CI has one of its own
        # Durations depend on the load of the machine, so they fail no test.
        hypothesis.settings.register_profile(
            "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
        hypothesis.settings.load_profile("busy")


def _use_broker(url: str) -> None:
    settings.REDIS_URL = url
    celery.app.conf.update(transport.build_celery_settings(url))
    pools.reset()  # type: ignore[no-untyped-call] # or producers of the broker before are used again
    celery.app.amqp._producer_pool = celery.app._pool = None
