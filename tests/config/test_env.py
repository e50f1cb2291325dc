"""An invalid value in the environment ends a process with one line that names its variable."""

from pathlib import Path

import pytest
import redis

from agents.endpoints import Endpoint, Kind
from config.env import environment
from config.env.errors import InvalidSetting
from tests.support import commands


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://localhost/abeyance"),
        ("DATABASE_URL", "postgres://localhost"),
        ("DATABASE_URL", "postgres://localhost:port/abeyance"),
        ("REDIS_URL", "amqp://localhost"),
        ("SCIM_URL", "directory.example"),
        ("EMAIL_URL", "pigeon://localhost"),
        ("ABEYANCE_AGENTS", "agents/flows/hr.py"),
        ("AGENTS_DIR", "/nowhere/agents"),
        ("ABEYANCE_IMPORT_KEYS", "/nowhere/partner.public"),
        ("ABEYANCE_MODEL", "gpt"),
        ("ABEYANCE_MODEL", "openai:"),
        ("ABEYANCE_MODEL", "acme:large"),
        ("ABEYANCE_MODEL", "azure:large"),
        ("ABEYANCE_PROVIDER_ACME_ADDRESS", "https://models.example/v1"),
        ("ABEYANCE_PROVIDER_OPENAI_URL", "https://models.example/v1"),
        ("ABEYANCE_PROVIDER_VLLM_URL", "gpu:8000"),
        ("ABEYANCE_PROVIDER_VLLM_KIND", "cohere"),
        ("ABEYANCE_PROVIDER_VLLM_STREAM", "perhaps"),
        ("ABEYANCE_PROVIDER_VLLM_KEY_FILE", "/nowhere/key"),
        ("ABEYANCE_MODEL", "scripted,openai:x"),
        ("OPENAI_BASE_URL", "models.example/v1"),
        ("ANTHROPIC_BASE_URL", "models.example"),
        ("ABEYANCE_LEASE_SECONDS", "soon"),
        ("ABEYANCE_LEASE_SECONDS", "0"),
        ("ABEYANCE_LEASE_SECONDS", "nan"),
        ("ABEYANCE_APPROVAL_SECONDS", "59"),
        ("ABEYANCE_APPROVAL_SECONDS", "31536001"),
        ("ABEYANCE_APPROVAL_SECONDS", "a week"),
        ("ABEYANCE_UNDO_SECONDS", "-1"),
        ("ABEYANCE_UNDO_SECONDS", "301"),
        ("ABEYANCE_UNDO_SECONDS", "a while"),
        ("ABEYANCE_DRAIN_SECONDS", "0"),
        ("ABEYANCE_UNSAFE_POSTGRES", "perhaps"),
        ("ABEYANCE_PREPARED_STATEMENTS", "perhaps"),
        ("ABEYANCE_POISON_LOSSES", "0"),
        ("ABEYANCE_POISON_LOSSES", "three"),
        ("ABEYANCE_WORKERS", "65"),
        ("ABEYANCE_WORKERS", "1.5"),
        ("ABEYANCE_DRAIN_SECONDS", "31"),
        ("ABEYANCE_RETENTION", "a week"),
        ("ABEYANCE_RETENTION", "hr_onboarding/running=3"),
        ("ABEYANCE_RETENTION", "3, *=4"),
        ("ABEYANCE_BUDGET_TURNS", "0"),
        ("ABEYANCE_BUDGET_TOKENS", "many"),
        ("ABEYANCE_BUDGET_USD", "-1"),
        ("ABEYANCE_BUDGET_USD", "0.0000001"),
        ("ABEYANCE_BUDGET_SECONDS", "nan"),
        ("SECRET_KEY_FILE", "/nowhere/secret"),
        ("PUBLIC_URL", "abeyance.example"),
        ("BEHIND_PROXY", "perhaps"),
        ("DATABASE_PASSWORD_FILE", "/nowhere/password"),
        ("DATABASE_PASSWORD_FILE", "/dev/null"),
        ("ABEYANCE_WEB_ROLE", "abeyance_web"),
        ("ABEYANCE_WORKER_ROLE", "abeyance_worker"),
        ("ABEYANCE_WEB_PASSWORD_FILE", "/nowhere/password"),
        ("ABEYANCE_WORKER_PASSWORD_FILE", "/dev/null"),
        ("REDIS_PASSWORD_FILE", "/nowhere/password"),
        ("REDIS_PASSWORD_FILE", "/dev/null"),
        ("EMAIL_PASSWORD_FILE", "/nowhere/password"),
        ("SCIM_TOKEN_FILE", "/nowhere/token"),
        ("OPENAI_API_KEY_FILE", "/nowhere/key"),
        ("ANTHROPIC_API_KEY_FILE", "/nowhere/key"),
        ("ALLOWED_HOSTS", "*"),
        ("ABEYANCE_INSTANCE", "a b"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidSetting) as problem:
        environment.read({name: value})
    assert str(problem.value).startswith(f"{name} ")
    assert "\n" not in str(problem.value)


def test_a_process_with_a_bad_value_ends_with_that_line_alone() -> None:
    done = commands.manage("check", env={"ABEYANCE_LEASE_SECONDS": "soon"})
    assert done.returncode == 1
    said = "abeyance: ABEYANCE_LEASE_SECONDS must be a number of seconds, not 'soon'\n"
    assert (done.stdout, done.stderr) == ("", said)


def test_a_socket_folder_can_stand_in_the_place_of_the_host() -> None:
    database = environment.read(
        {"DATABASE_URL": "postgres://me:p%40ss@%2Frun%2Fpg/abeyance"}
    ).database
    assert (database["HOST"], database["PASSWORD"]) == ("/run/pg", "p@ss")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: {path}: No such file or directory"),
        (b"short", "must hold at least 50 characters"),
        (b"\xff" * 60, "cannot be read: {path} is not text"),
    ],
)
def test_a_secret_key_that_cannot_be_used(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidSetting) as refused:
        environment.read({"SECRET_KEY_FILE": str(path)})
    assert str(refused.value) == f"SECRET_KEY_FILE {problem.format(path=path)}"


def test_https_in_the_public_address_changes_every_setting() -> None:
    code = (
        "from config import settings as s;"
        "print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SECURE_SSL_REDIRECT,"
        " s.SECURE_HSTS_SECONDS > 0, s.ALLOWED_HOSTS[0], s.DEBUG)"
    )
    said = commands.python(
        "-c", code, env={"PUBLIC_URL": "https://abeyance.example", "BEHIND_PROXY": "yes"}
    ).stdout
    assert said.split() == ["True", "True", "True", "True", "abeyance.example", "False"]


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ("openai:x", "OPENAI_API_KEY"),
        ("anthropic:x", "ANTHROPIC_API_KEY"),
        ("gemini:x", "ABEYANCE_PROVIDER_GEMINI_KEY"),
    ],
)
def test_a_provider_needs_its_key_which_no_text_shows(model: str, key: str) -> None:
    for missing in ({}, {key: " "}):
        with pytest.raises(InvalidSetting, match=f"{key} must be set") as problem:
            environment.read({"ABEYANCE_MODEL": model, **missing})
        assert problem.value.name == key
    given = environment.read({"ABEYANCE_MODEL": model, key: "sk-canary\n"})
    assert given.model == model
    keys = [endpoint.key for endpoint in given.providers.values()]
    assert "sk-canary" in (given.openai_api_key, given.anthropic_api_key, *keys)
    assert "canary" not in repr(given)


def test_models_are_listed_once_in_the_order_of_calls() -> None:
    keys = {"OPENAI_API_KEY": "a", "ANTHROPIC_API_KEY": "b"}
    given = environment.read({"ABEYANCE_MODEL": "openai:x , anthropic:y", **keys})
    assert given.model == "openai:x,anthropic:y"
    for wrong in ("openai:x,openai:x", "openai:x,"):
        with pytest.raises(InvalidSetting, match="ABEYANCE_MODEL"):
            environment.read({"ABEYANCE_MODEL": wrong, **keys})


def test_without_a_word_about_models_the_scripts_play_them() -> None:
    assert (
        environment.read({}).model == environment.read({"ABEYANCE_MODEL": ""}).model == "scripted"
    )


def test_a_provider_is_named_by_its_variables(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-canary\n")
    given = environment.read(
        {
            "ABEYANCE_MODEL": "our_gpu:llama,team:small,azure:gpt",
            "ABEYANCE_PROVIDER_TEAM_URL": "http://team:8000/v1",
            "ABEYANCE_PROVIDER_OUR_GPU_URL": "http://gpu:8000/v1/",
            "ABEYANCE_PROVIDER_OUR_GPU_KIND": "vllm",
            "ABEYANCE_PROVIDER_OUR_GPU_STREAM": "no",
            "ABEYANCE_PROVIDER_AZURE_URL": "https://desk.openai.azure.com/openai/v1",
            "ABEYANCE_PROVIDER_AZURE_KEY_FILE": str(tmp_path / "key"),
            "ABEYANCE_PROVIDER_LEFT_EMPTY_URL": "",
        }
    ).providers
    gpu = Endpoint(name="our_gpu", kind=Kind.VLLM, url="http://gpu:8000/v1", streams=False)
    address = "https://desk.openai.azure.com/openai/v1"
    azure = Endpoint(name="azure", kind=Kind.AZURE, url=address, key="sk-canary")
    team = Endpoint(name="team", kind=Kind.OPENAI, url="http://team:8000/v1")
    assert given == {"our_gpu": gpu, "azure": azure, "team": team}


def test_a_key_alone_is_not_sent_to_openai() -> None:
    with pytest.raises(InvalidSetting, match=r"^ABEYANCE_PROVIDER_ACME_URL must be set"):
        environment.read({"ABEYANCE_PROVIDER_ACME_KEY": "sk-canary"})


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("ollama", "http://127.0.0.1:11434/v1"),
    ],
)
def test_the_address_of_a_known_provider_is_known(name: str, address: str) -> None:
    given = environment.read({f"ABEYANCE_PROVIDER_{name.upper()}_KEY": "sk-canary"}).providers
    assert given[name].address == address


SECRET = "p@ss/word:canary"


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    return str(file)


def test_secrets_come_from_files_and_no_text_shows_them(secret_file: str) -> None:
    given = environment.read(
        {
            "DATABASE_URL": "postgres://abeyance@postgres/abeyance",
            "DATABASE_PASSWORD_FILE": secret_file,
            "REDIS_URL": "redis://redis:6379/0",
            "REDIS_PASSWORD_FILE": secret_file,
            "EMAIL_URL": "smtp+tls://desk@mail.example:587",
            "EMAIL_PASSWORD_FILE": secret_file,
            "SCIM_TOKEN_FILE": secret_file,
            "ANTHROPIC_API_KEY_FILE": secret_file,
            "ABEYANCE_MODEL": "anthropic:x",
        }
    )
    assert given.database["PASSWORD"] == SECRET
    assert given.redis_url == "redis://:p%40ss%2Fword%3Acanary@redis:6379/0"
    assert redis.Redis.from_url(given.redis_url).get_connection_kwargs()["password"] == SECRET
    assert given.email["EMAIL_HOST_PASSWORD"] == SECRET
    assert given.scim_token == given.anthropic_api_key == SECRET
    assert "canary" not in repr(given)


@pytest.mark.parametrize(
    ("file", "name", "value"),
    [
        ("DATABASE_PASSWORD_FILE", "DATABASE_URL", "postgres://me:secret@h/abeyance"),
        ("REDIS_PASSWORD_FILE", "REDIS_URL", "redis://:secret@h/0"),
        ("REDIS_PASSWORD_FILE", "REDIS_URL", "unix:///run/broker.sock"),
        ("EMAIL_PASSWORD_FILE", "EMAIL_URL", "smtp://me:secret@h:25"),
        ("SCIM_TOKEN_FILE", "SCIM_TOKEN", "secret"),
        ("OPENAI_API_KEY_FILE", "OPENAI_API_KEY", "secret"),
        ("ANTHROPIC_API_KEY_FILE", "ANTHROPIC_API_KEY", "secret"),
    ],
)
def test_a_secret_that_is_given_twice_is_refused(
    secret_file: str, file: str, name: str, value: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"^{file} .*{name}"):
        environment.read({file: secret_file, name: value})


def test_an_optional_secret_may_be_an_empty_file() -> None:
    empty = {"EMAIL_PASSWORD_FILE": "/dev/null", "SCIM_TOKEN_FILE": "/dev/null"}
    assert environment.read(empty).scim_token == ""


def test_https_requires_a_proxy_that_ends_it() -> None:
    with pytest.raises(InvalidSetting, match=r"^BEHIND_PROXY must be yes"):
        environment.read({"PUBLIC_URL": "https://abeyance.example"})


def test_the_https_header_is_trusted_only_behind_a_proxy() -> None:
    code = (
        "from config import settings as s; print(s.SECURE_PROXY_SSL_HEADER, s.SECURE_SSL_REDIRECT)"
    )
    said = {
        told: commands.python("-c", code, env={"BEHIND_PROXY": told}).stdout.strip()
        for told in ("no", "yes")
    }
    assert said == {"no": "None False", "yes": "('HTTP_X_FORWARDED_PROTO', 'https') False"}
