"""An invalid value in the environment ends a process with one line that names its variable."""

from pathlib import Path
from typing import Any

import pytest

from agents.endpoints import Endpoint, ProviderKind
from config.env import environment
from config.env.values import InvalidSetting
from tests.support import commands


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://localhost/signoff"),
        ("DATABASE_URL", "postgres://localhost"),
        ("DATABASE_URL", "postgres://localhost:port/signoff"),
        ("REDIS_URL", "amqp://localhost"),
        ("SCIM_URL", "directory.example"),
        ("EMAIL_URL", "pigeon://localhost"),
        ("SIGNOFF_AGENTS", "agents/flows/hr.py"),
        ("AGENTS_DIR", "/nowhere/agents"),
        ("SIGNOFF_IMPORT_KEYS", "/nowhere/partner.public"),
        ("SIGNOFF_WATCHED_FOLDERS", "invoices"),
        ("SIGNOFF_WATCHED_BUCKETS", "/srv/inbox"),
        ("SIGNOFF_STREAMS", "a\nb"),
        ("SIGNOFF_INTERNAL_WEBHOOKS", "10.0.0.1/8"),
        ("SIGNOFF_NOTICES", "mail=everything"),
        ("SIGNOFF_NOTICES", "pigeon=title"),
        ("SIGNOFF_STREAMS_URL", "amqp://localhost"),
        ("SIGNOFF_MODEL", "gpt"),
        ("SIGNOFF_MODEL", "acme:large"),
        ("SIGNOFF_MODEL", "azure:large"),
        ("SIGNOFF_PROVIDER_ACME_ADDRESS", "https://models.example/v1"),
        ("SIGNOFF_PROVIDER_VLLM_URL", "gpu:8000"),
        ("SIGNOFF_PROVIDER_VLLM_KIND", "cohere"),
        ("SIGNOFF_OIDC_ACME_ISSUER", "http://login.example"),
        ("SIGNOFF_OIDC_ACME_URL", "https://login.example"),
        ("SIGNOFF_MODEL", "scripted,openai:x"),
        ("SIGNOFF_LEASE_SECONDS", "nan"),
        ("SIGNOFF_UNSAFE_POSTGRES", "perhaps"),
        ("SIGNOFF_WORKERS", "1.5"),
        ("SIGNOFF_RETENTION", "a week"),
        ("SIGNOFF_ARCHIVE", "a week"),
        ("SIGNOFF_HISTORY_DAYS", "a week"),
        ("SIGNOFF_HISTORY_DAYS", "nan"),
        ("SIGNOFF_BUDGET_USD", "0.0000001"),
        ("DATABASE_PASSWORD_FILE", "/dev/null"),
        ("SIGNOFF_WEB_ROLE", "signoff_web"),
        ("SIGNOFF_WORKER_ROLE", "signoff_worker"),
        ("SIGNOFF_WORKER_PASSWORD_FILE", "/dev/null"),
        ("ALLOWED_HOSTS", "*"),
        ("SIGNOFF_INSTANCE", "a b"),
        ("SIGNOFF_METRICS_TOKEN", "short"),
        ("SIGNOFF_METRICS_TOKEN", "with spaces in the middle"),
        ("SIGNOFF_OBJECT_STORE", "objects"),
        ("SIGNOFF_OBJECT_STORE", "ftp://bucket"),
        ("SIGNOFF_OBJECT_BYTES", "65535"),
        ("SIGNOFF_OBJECT_BYTES", "4194305"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting) as problem:
        environment.read({name: value})
    assert str(problem.value).startswith(f"{name} ")
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("name", "value", "field", "read"),
    [
        ("SIGNOFF_WATCHED_BUCKETS", "/ , s3://books/", "watched_buckets", ("s3://books",)),
        ("SIGNOFF_NOTICES", "mail=all, mail=title", "notices", {"mail": "title"}),
        ("SIGNOFF_OBJECT_STORE", "/", "object_store", ""),
        ("LOG_LEVEL", "debug", "log_level", "DEBUG"),
        ("LOG_LEVEL", "", "log_level", "INFO"),
        ("SIGNOFF_AGENTS", "", "agents", ("agents.flows.hr",)),
    ],
)
def test_a_list_may_have_what_says_nothing(name: str, value: str, field: str, read: Any) -> None:
    assert getattr(environment.read({name: value}), field) == read


def test_a_log_level_is_named_as_it_is_compared() -> None:
    with pytest.raises(InvalidSetting, match=r"^LOG_LEVEL must be .* error, not 'LOUD'$"):
        environment.read({"LOG_LEVEL": "loud"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SIGNOFF_LEASE_SECONDS", "soon", "must be a number of seconds, not 'soon'"),
        (
            *("SIGNOFF_OBJECT_STORE", "az://container"),
            "cannot be used: Generic MicrosoftAzure error: Account must be specified",
        ),
        ("SIGNOFF_ARCHIVE", "90", "needs SIGNOFF_OBJECT_STORE, where its files are"),
    ],
)
def test_a_process_with_a_bad_value_ends_with_that_line_alone(
    name: str, value: str, said: str
) -> None:
    done = commands.manage("check", env={name: value})
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", f"signoff: {name} {said}\n")


def test_webhooks_on_this_machine_are_for_tests_alone() -> None:
    variables = {"SIGNOFF_LOOPBACK_WEBHOOKS": "yes"}
    assert environment.read(variables).loopback_webhooks
    public = {"PUBLIC_URL": "https://signoff.example", "BEHIND_PROXY": "yes"}
    assert not environment.read(public).loopback_webhooks
    with pytest.raises(InvalidSetting, match=r"^SIGNOFF_LOOPBACK_WEBHOOKS is for tests"):
        environment.read({**variables, **public})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: {path}: No such file or directory"),
        (b"short", "must hold at least 50 characters"),
        (b"\xff" * 60, "cannot be read: {path} is not text"),
    ],
)
def test_an_unusable_secret_key(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSetting) as refused:
        environment.read({"SECRET_KEY_FILE": str(path)})
    assert str(refused.value) == f"SECRET_KEY_FILE {problem.format(path=path)}"


@pytest.mark.parametrize(
    ("model", "key"), [("openai:x", "OPENAI_API_KEY"), ("gemini:x", "SIGNOFF_PROVIDER_GEMINI_KEY")]
)
def test_a_provider_needs_its_key_which_no_text_shows(model: str, key: str) -> None:
    for missing in ({}, {key: " "}):
        with pytest.raises(InvalidSetting, match=f"^{key} must be set"):
            environment.read({"SIGNOFF_MODEL": model, **missing})
    given = environment.read({"SIGNOFF_MODEL": f"{model} , {model}2", key: "sk-canary\n"})
    assert given.model == f"{model},{model}2"
    keys = [endpoint.key for endpoint in given.providers.values()]
    assert "sk-canary" in (given.openai_api_key, *keys)
    assert "canary" not in repr(given)
    for wrong in (f"{model},{model}", f"{model},"):
        with pytest.raises(InvalidSetting, match=r"^SIGNOFF_MODEL "):
            environment.read({"SIGNOFF_MODEL": wrong, key: "sk-canary"})


def test_people_sign_in_at_providers_with_client_and_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary\n")
    given = {
        "SIGNOFF_OIDC_ACME_ISSUER": "https://login.acme.example/realms/staff",
        "SIGNOFF_OIDC_ACME_CLIENT": "signoff",
        "SIGNOFF_OIDC_ACME_SECRET_FILE": str(tmp_path / "secret"),
        "SIGNOFF_OIDC_ACME_ACR": "phr phrh",
        "SIGNOFF_OIDC_ACME_SECOND_FACTOR": "yes",
    }
    acme = environment.read(given).oidc["acme"]
    assert (acme.acr, acme.asks_second) == ("phr phrh", True)
    assert (acme.label, acme.client, acme.secret) == ("Acme", "signoff", "canary")
    assert "canary" not in repr(acme)
    for name in list(given)[1:3]:
        wanted = name.removesuffix("_FILE")
        with pytest.raises(InvalidSetting, match=rf"^{wanted} must be set"):
            environment.read({**given, name: ""})


def test_a_process_without_a_provider_cannot_load_allauth() -> None:
    code = "import django, sys; django.setup(); import config.urls; print('allauth' in sys.modules)"
    done = commands.python("-c", code, env={"DJANGO_SETTINGS_MODULE": "config.settings"})
    assert done.stdout == "False\n"


def test_a_provider_is_named_by_its_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-canary\n")
    given = environment.read(
        {
            "SIGNOFF_MODEL": "our_gpu:llama,team:small,azure:gpt",
            "SIGNOFF_PROVIDER_TEAM_URL": "http://team:8000/v1",
            "SIGNOFF_PROVIDER_OUR_GPU_URL": "http://gpu:8000/v1/",
            "SIGNOFF_PROVIDER_OUR_GPU_KIND": "vllm",
            "SIGNOFF_PROVIDER_OUR_GPU_STREAM": "no",
            "SIGNOFF_PROVIDER_AZURE_URL": "https://desk.openai.azure.com/openai/v1",
            "SIGNOFF_PROVIDER_AZURE_KEY_FILE": str(tmp_path / "key"),
            "SIGNOFF_PROVIDER_LEFT_EMPTY_URL": "",
        }
    ).providers
    gpu = Endpoint(name="our_gpu", kind=ProviderKind.VLLM, url="http://gpu:8000/v1", streams=False)
    address = "https://desk.openai.azure.com/openai/v1"
    azure = Endpoint(name="azure", kind=ProviderKind.AZURE, url=address, key="sk-canary")
    team = Endpoint(name="team", kind=ProviderKind.OPENAI, url="http://team:8000/v1")
    assert given == {"our_gpu": gpu, "azure": azure, "team": team}
    # A key alone is not sent to OpenAI.
    with pytest.raises(InvalidSetting, match=r"^SIGNOFF_PROVIDER_ACME_URL must be set"):
        environment.read({"SIGNOFF_PROVIDER_ACME_KEY": "sk-canary"})


SECRET = "p@ss/word:canary"


def test_secrets_come_from_files_and_no_text_shows_them(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    files = {
        "DATABASE_PASSWORD_FILE": str(file),
        "REDIS_PASSWORD_FILE": str(file),
        "EMAIL_PASSWORD_FILE": str(file),
        "SCIM_TOKEN_FILE": str(file),
    }
    given = environment.read({**files, "REDIS_URL": "redis://redis:6379/0"})
    assert given.database["PASSWORD"] == given.email["EMAIL_HOST_PASSWORD"] == SECRET
    assert given.redis_url == "redis://:p%40ss%2Fword%3Acanary@redis:6379/0"
    assert given.scim_token == SECRET
    url = "postgres://me:p%40ss@%2Frun%2Fpg/signoff"
    database = environment.read({"DATABASE_URL": url}).database
    assert (database["HOST"], database["PASSWORD"]) == ("/run/pg", "p@ss")
    assert "canary" not in repr(given)
    for twice in (
        {"DATABASE_URL": "postgres://me:secret@h/signoff"},
        {"REDIS_URL": "redis://:secret@h/0"},
        {"REDIS_URL": "unix:///run/broker.sock"},
        {"EMAIL_URL": "smtp://me:secret@h:25"},
        {"SCIM_TOKEN": "secret"},
    ):
        (name,) = twice
        with pytest.raises(InvalidSetting, match=f"^{name.partition('_')[0]}_.*_FILE .*{name}"):
            environment.read({**files, **twice})
    empty = {"EMAIL_PASSWORD_FILE": "/dev/null", "SCIM_TOKEN_FILE": "/dev/null"}
    assert environment.read(empty).scim_token == ""


def test_the_https_header_is_trusted_only_behind_a_proxy() -> None:
    code = (
        "from config import settings as s; print(s.SECURE_PROXY_SSL_HEADER, s.SECURE_SSL_REDIRECT)"
    )
    said = {
        told: commands.python("-c", code, env={"BEHIND_PROXY": told}).stdout.strip()
        for told in ("no", "yes")
    }
    with pytest.raises(InvalidSetting, match=r"^BEHIND_PROXY must be yes"):
        environment.read({"PUBLIC_URL": "https://signoff.example"})
    assert said == {"no": "None False", "yes": "('HTTP_X_FORWARDED_PROTO', 'https') False"}
