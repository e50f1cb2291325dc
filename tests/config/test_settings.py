"""The settings that a deployment depends on."""

import ssl
from pathlib import Path

import pytest
from celery.worker.control import Panel
from django.test import Client
from kombu.connection import Connection
from pytest_django import Settings

from config import celery
from config.broker import consumer, transport
from config.env.environment import ROOT
from tests.support import commands


def test_a_deployment_on_https_passes_every_check_of_django() -> None:
    done = commands.manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        env={
            "PUBLIC_URL": "https://signoff.example",
            "BEHIND_PROXY": "yes",
            "SECRET_KEY_FILE": str(ROOT / "manage.py"),  # any text of that length
        },
    )
    assert done.returncode == 0, done.stderr


def test_the_web_alone_bounds_its_reads_of_the_object_store(tmp_path: Path) -> None:
    script = (
        "import django; django.setup()\n"
        "from runtime.ports import wiring\n"
        "print(type(wiring.objects()).__name__)\n"
        "import config.asgi\n"
        "print(type(wiring.objects()).__name__)"
    )
    env = {"SIGNOFF_OBJECT_STORE": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = commands.python("-c", script, env=env)
    assert done.stdout.split() == ["Folder", "BoundedReads"], done.stderr


@pytest.mark.parametrize(
    ("redis_url", "found"),
    [
        ("unix:///run/b.sock", {"hostname": "socket:///run/b.sock"}),
        ("redis://:secret@h:1/2", {"hostname": "h", "port": 1, "password": "secret"}),
        ("rediss://h", {"hostname": "h", "ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED}}),
        ("rediss://h?ssl_cert_reqs=none", {"ssl": {"ssl_cert_reqs": ssl.CERT_NONE}}),
    ],
)
def test_the_broker_is_found_where_redis_url_says(redis_url: str, found: dict[str, object]) -> None:
    told = transport.connection(redis_url)
    kombus = Connection(told["broker_url"], ssl=told["broker_use_ssl"])
    assert isinstance(kombus.transport, transport.Transport)
    assert {name: getattr(kombus, name) for name in found} == found


def test_access_to_the_broker_runs_no_code() -> None:
    assert celery.app.conf.accept_content == ["json"]
    assert celery.app.conf.broker_transport_options["socket_timeout"] <= 5


def test_every_command_of_celery_is_kept_or_refused() -> None:
    """If a Celery release adds a command, list it in KEPT if it only reads a worker's state, else in REFUSED."""
    assert set(Panel.data) == consumer.KEPT | consumer.REFUSED
    refused = {name for name, command in Panel.data.items() if command is Panel.data["shutdown"]}
    assert refused == consumer.REFUSED


@pytest.mark.django_db
def test_behind_a_proxy_only_https_and_health_are_answered(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    client = Client()
    assert client.get("/login/").status_code == 301
    assert client.get("/login/", headers={"X-Forwarded-Proto": "https"}).status_code == 200
    assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200
    assert client.get("/readyz").status_code == 503
