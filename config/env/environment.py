"""Reads and checks the environment once. An invalid value ends the process with one line that names the variable."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from agents import endpoints
from agents.endpoints import Endpoint
from approvals.rules.identity_providers import IdentityProvider, SlackApp
from config.env import providers, values
from config.env.values import InvalidSetting
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.limits import KEPT_INLINE, MAX_RESULT
from runtime.store.object_stores.stores import SCHEMES
from runtime.upkeep import retention_rules

MINUTE = 60.0
DAY = 24 * 60 * MINUTE
DRAIN_SECONDS = 30.0
MAX_WORKERS = 64
NOTICE_KINDS = {"mail", "apprise", "slack", "push"}
NOTICE_CONTENTS = {"nothing", "title", "arguments"}
MAX_STREAM = 200  # characters of the name of a stream

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariables:
    """All variables of the application, parsed for Django's settings."""

    database: dict[str, Any] = field(repr=False)
    web_role: str | None
    web_password: str = field(repr=False)
    worker_role: str | None
    worker_password: str = field(repr=False)
    redis_url: str = field(repr=False)
    streams: tuple[str, ...]
    streams_url: str = field(repr=False)
    scim_url: str
    scim_token: str = field(repr=False)
    metrics_token: str = field(repr=False)
    object_store: str
    object_bytes: int
    email: dict[str, Any] = field(repr=False)
    email_sender: str
    agents: tuple[str, ...]
    agents_dir: str
    model: str
    openai_base_url: str
    openai_api_key: str = field(repr=False)
    anthropic_base_url: str
    anthropic_api_key: str = field(repr=False)
    providers: Mapping[str, Endpoint]
    oidc: Mapping[str, IdentityProvider]
    slack: SlackApp | None
    lease_seconds: float
    approval_seconds: float
    outage_seconds: float
    undo_seconds: float
    use_seconds: float
    gateway_seconds: float
    mcp_decisions: bool
    cooling_off_seconds: float
    drain_seconds: float
    unsafe_postgres: bool
    prepared_statements: bool
    retention: tuple[retention_rules.RetentionRule, ...]
    archive: tuple[retention_rules.RetentionRule, ...]
    history_days: float | None
    poison_losses: int
    workers: int
    budget: BudgetLimits | None
    keys_dir: Path
    ledger: Path | None
    worker_keys_dir: Path | None
    import_keys: tuple[Path, ...]
    watched_folders: tuple[Path, ...]
    watched_buckets: tuple[str, ...]
    secret_key: str = field(repr=False)
    public_url: str
    loopback_webhooks: bool
    notices: Mapping[str, str]
    internal_webhooks: tuple[IPv4Network | IPv6Network, ...]
    behind_proxy: bool
    allowed_hosts: tuple[str, ...]
    static_root: Path
    instance: str
    log_level: str


def load(variables: Mapping[str, str]) -> EnvironmentVariables:
    """Read and check all variables. End the process with one line if a value is invalid."""
    try:
        return read(variables)
    except InvalidSetting as problem:
        raise SystemExit(f"signoff: {problem}") from None


def read(variables: Mapping[str, str]) -> EnvironmentVariables:
    """Read all variables. Raise InvalidSetting for the first invalid value."""
    public_url = values.web_address(variables, "PUBLIC_URL") or "http://127.0.0.1:8000"
    log_level = (variables.get("LOG_LEVEL") or "INFO").upper()
    if log_level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise InvalidSetting(
            "LOG_LEVEL", f"must be debug, info, warning or error, not {log_level!r}"
        )
    return EnvironmentVariables(
        public_url=public_url,
        **read_servers(variables),
        **read_agents(variables),
        **read_limits(variables),
        **read_files(variables),
        **read_messages(variables, public_url),
        **read_access(variables, public_url),
        log_level=log_level,
    )


def read_servers(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read where Postgres, the broker, the directory, the object store and the mail server are."""
    redis_url = _redis_url(variables)
    streams_url = variables.get("SIGNOFF_STREAMS_URL") or redis_url
    object_store = variables.get("SIGNOFF_OBJECT_STORE", "").rstrip("/")
    if object_store and not object_store.startswith(("/", *SCHEMES)):
        raise InvalidSetting(
            "SIGNOFF_OBJECT_STORE",
            f"must be a folder from / on, or start with {' '.join(SCHEMES)}",
        )
    return {
        "database": _database(variables),
        "web_role": _role(variables, "SIGNOFF_WEB_ROLE", paired_with="SIGNOFF_WORKER_ROLE"),
        "web_password": _role_password(variables, "SIGNOFF_WEB_PASSWORD_FILE"),
        "worker_password": _role_password(variables, "SIGNOFF_WORKER_PASSWORD_FILE"),
        "worker_role": _role(variables, "SIGNOFF_WORKER_ROLE", paired_with="SIGNOFF_WEB_ROLE"),
        "unsafe_postgres": values.yes(variables, "SIGNOFF_UNSAFE_POSTGRES"),
        "prepared_statements": values.yes(variables, "SIGNOFF_PREPARED_STATEMENTS", default="yes"),
        "redis_url": redis_url,
        "streams": _list(
            variables,
            "SIGNOFF_STREAMS",
            lambda stream: len(stream) <= MAX_STREAM and stream.isprintable(),
            f"must have names of at most {MAX_STREAM} characters",
        ),
        "streams_url": _redis_address("SIGNOFF_STREAMS_URL", streams_url),
        "scim_url": values.web_address(variables, "SCIM_URL"),
        "scim_token": values.secret(variables, "SCIM_TOKEN"),
        "object_store": object_store,
        "object_bytes": _number(
            variables, "SIGNOFF_OBJECT_BYTES", KEPT_INLINE, KEPT_INLINE, MAX_RESULT
        ),
        "email": _email(variables),
        "email_sender": variables.get("EMAIL_SENDER") or "Signoff <signoff@localhost>",
    }


def read_agents(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read the modules of the agents, and the providers of their models."""
    openai = values.web_address(variables, "OPENAI_BASE_URL")
    openai_key = values.secret(variables, "OPENAI_API_KEY")
    anthropic = values.web_address(variables, "ANTHROPIC_BASE_URL")
    anthropic_key = values.secret(variables, "ANTHROPIC_API_KEY")
    custom_providers = providers.read_endpoints(variables)
    known_endpoints = endpoints.list_providers(
        openai=(openai, openai_key),
        anthropic=(anthropic, anthropic_key),
        configured=custom_providers,
    )
    return {
        "agents": _list(
            variables,
            "SIGNOFF_AGENTS",
            lambda module: all(part.isidentifier() for part in module.split(".")),
            "names {!r}, which is not a Python module",
            default="agents.flows.hr",
        ),
        "agents_dir": _agents_dir(variables),
        "model": providers.read_model(variables, known_endpoints),
        "openai_base_url": openai,
        "openai_api_key": openai_key,
        "anthropic_base_url": anthropic,
        "anthropic_api_key": anthropic_key,
        "providers": custom_providers,
    }


def read_limits(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read times, counts, the rules of retention, and the budget of a run."""
    cores = len(os.sched_getaffinity(0))  # that this process may use
    return {
        "lease_seconds": _seconds(variables, "SIGNOFF_LEASE_SECONDS", 10.0, 1, 600),
        "approval_seconds": _seconds(
            variables, "SIGNOFF_APPROVAL_SECONDS", 7 * DAY, MINUTE, 365 * DAY
        ),
        "outage_seconds": _seconds(variables, "SIGNOFF_OUTAGE_SECONDS", DAY, MINUTE, 365 * DAY),
        "drain_seconds": _seconds(variables, "SIGNOFF_DRAIN_SECONDS", DRAIN_SECONDS, 1, 30),
        "retention": _rules(variables, "SIGNOFF_RETENTION"),
        "archive": _rules(variables, "SIGNOFF_ARCHIVE"),
        "history_days": _history_days(variables),
        "poison_losses": _number(variables, "SIGNOFF_POISON_LOSSES", 3, 1, 100),
        "workers": _number(variables, "SIGNOFF_WORKERS", min(cores, MAX_WORKERS), 1, MAX_WORKERS),
        "undo_seconds": _seconds(variables, "SIGNOFF_UNDO_SECONDS", 10.0, 0, 300),
        "use_seconds": _seconds(variables, "SIGNOFF_USE_SECONDS", 300.0, 10, DAY),
        "gateway_seconds": _seconds(variables, "SIGNOFF_GATEWAY_SECONDS", 50.0, 1, 600),
        "cooling_off_seconds": _seconds(
            variables, "SIGNOFF_COOLING_OFF_SECONDS", DAY, 0, 365 * DAY
        ),
        "budget": values.read_budget(variables),
    }


def read_files(variables: Mapping[str, str]) -> dict[str, Any]:
    """Read the files of keys, ledger and static files, and the watched folders and buckets."""
    return {
        "keys_dir": Path(variables.get("KEYS_DIR") or ROOT / "var" / "keys"),
        "ledger": _folder(variables, "SIGNOFF_LEDGER"),
        "worker_keys_dir": _folder(variables, "WORKER_KEYS_DIR"),
        "import_keys": tuple(
            Path(path)
            for path in _list(
                variables,
                "SIGNOFF_IMPORT_KEYS",
                os.path.exists,  # Path would raise without permission
                "names a file or folder that does not exist: {}",
            )
        ),
        # They may be missing here: the sweeper alone reads them.
        "watched_folders": tuple(
            Path(path)
            for path in _list(
                variables,
                "SIGNOFF_WATCHED_FOLDERS",
                lambda path: (
                    path.startswith("/")
                    and ".." not in Path(path).parts
                    and len(Path(path).parts) > 1
                ),
                "must have paths from / on, without .., not {!r}",
            )
        ),
        "watched_buckets": _list(
            variables,
            "SIGNOFF_WATCHED_BUCKETS",
            lambda address: address.startswith(SCHEMES) and not address.endswith(":"),
            f"must have addresses from {' '.join(SCHEMES)} on",
            ending="/",
        ),
        "secret_key": _secret_key(variables),
        "static_root": Path(variables.get("STATIC_ROOT") or ROOT / "staticfiles"),
    }


def read_messages(variables: Mapping[str, str], public_url: str) -> dict[str, Any]:
    """Read where webhooks may go, and what notices may show."""
    # Webhooks may be on this machine, without TLS: for tests, and never on a real installation.
    loopback_webhooks = values.yes(variables, "SIGNOFF_LOOPBACK_WEBHOOKS")
    if loopback_webhooks and public_url.startswith("https://"):
        raise InvalidSetting(
            "SIGNOFF_LOOPBACK_WEBHOOKS", "is for tests, so PUBLIC_URL must not be https"
        )
    networks = [text.strip() for text in variables.get("SIGNOFF_INTERNAL_WEBHOOKS", "").split(",")]
    try:
        internal_webhooks = tuple(ip_network(network) for network in networks if network)
    except ValueError as exc:
        raise InvalidSetting(
            "SIGNOFF_INTERNAL_WEBHOOKS", "must have networks such as 10.1.0.0/16"
        ) from exc
    # How much notices of each kind may show, such as mail=arguments,apprise=nothing
    pairs = [pair.strip() for pair in variables.get("SIGNOFF_NOTICES", "").split(",")]
    notices = {kind: text for kind, _, text in (pair.partition("=") for pair in pairs if pair)}
    if set(notices) - NOTICE_KINDS or set(notices.values()) - NOTICE_CONTENTS:
        raise InvalidSetting(
            "SIGNOFF_NOTICES",
            f"must have kind=content pairs; kinds: {', '.join(sorted(NOTICE_KINDS))};"
            f" contents: {', '.join(sorted(NOTICE_CONTENTS))}",
        )
    return {
        "loopback_webhooks": loopback_webhooks,
        "internal_webhooks": internal_webhooks,
        "notices": notices,
    }


def read_access(variables: Mapping[str, str], public_url: str) -> dict[str, Any]:
    """Read how people and programs reach the web process, where people sign in, and where they may decide."""
    behind_proxy = values.yes(variables, "BEHIND_PROXY")
    if not behind_proxy and public_url.startswith("https://"):
        # The web process speaks plain HTTP, so it would redirect every request to https without end.
        raise InvalidSetting(
            "BEHIND_PROXY",
            "must be yes, because PUBLIC_URL is https: a proxy that sets X-Forwarded-Proto",
        )
    hosts = _list(
        variables,
        "ALLOWED_HOSTS",
        lambda host: host != "*",
        "must list host names; * would accept any",
    )
    hosts += (urlsplit(public_url).hostname or "", "127.0.0.1", "localhost", "[::1]")
    instance = variables.get("SIGNOFF_INSTANCE", "")
    if instance and not instance.isalnum():
        raise InvalidSetting("SIGNOFF_INSTANCE", f"must be letters and digits, not {instance!r}")
    return {
        "behind_proxy": behind_proxy,
        "allowed_hosts": tuple(dict.fromkeys(hosts)),
        "instance": instance,
        "oidc": providers.read_identity_providers(variables),
        "slack": _slack(variables),
        "mcp_decisions": values.yes(variables, "SIGNOFF_MCP_DECISIONS"),
        "metrics_token": _metrics_token(variables),
    }


def _database(variables: Mapping[str, str]) -> dict[str, Any]:
    name = "DATABASE_URL"
    url = variables.get(name) or "postgres://localhost/signoff"
    if urlsplit(url).scheme not in ("postgres", "postgresql"):
        raise InvalidSetting(name, "must start with postgres://")
    try:
        config: dict[str, Any] = environ.Env.db_url_config(url)
    except (ImproperlyConfigured, ValueError) as error:
        raise InvalidSetting(name, f"cannot be read: {error}") from error
    if not config.get("NAME"):
        raise InvalidSetting(
            name, "must end with the name of a database, as in postgres://host/signoff"
        )
    if password := _password(variables, "DATABASE_PASSWORD_FILE", name, config.get("PASSWORD")):
        config["PASSWORD"] = password
    # The host may be a socket folder, with its slashes as %2F.
    return {**config, "HOST": unquote(config["HOST"])}


def _role(variables: Mapping[str, str], name: str, *, paired_with: str) -> str | None:
    """Read a Postgres role. It must be set together with the role named by `paired_with`."""
    role = variables.get(name) or None
    if role and not variables.get(paired_with):
        raise InvalidSetting(name, f"is set without {paired_with}: set both, or neither")
    return role


def _role_password(variables: Mapping[str, str], name: str) -> str:
    """Read the password that `prepare` sets for the role; empty if it sets none."""
    return _password(variables, name, "SIGNOFF_WEB_ROLE or SIGNOFF_WORKER_ROLE", None)


def _redis_url(variables: Mapping[str, str]) -> str:
    name = "REDIS_URL"
    url = _redis_address(name, variables.get(name) or "redis://localhost:6379/0")
    parts = urlsplit(url)
    password = _password(variables, "REDIS_PASSWORD_FILE", name, parts.password)
    if not password:
        return url
    if parts.scheme == "unix":
        raise InvalidSetting(
            "REDIS_PASSWORD_FILE", f"is not for a socket: {name} starts with unix://"
        )
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(
        netloc=f"{parts.username or ''}:{quote(password, safe='')}@{host}"
    ).geturl()


def _redis_address(name: str, url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise InvalidSetting(name, "must start with redis://, rediss:// or unix://")
    return url


def _email(variables: Mapping[str, str]) -> dict[str, Any]:
    name = "EMAIL_URL"
    try:
        config: dict[str, Any] = environ.Env.email_url_config(
            variables.get(name) or "smtp://localhost:25"
        )
    except (ImproperlyConfigured, ValueError) as error:
        raise InvalidSetting(name, f"cannot be read: {error}") from error
    url_password = config.get("EMAIL_HOST_PASSWORD")
    if password := _password(
        variables, "EMAIL_PASSWORD_FILE", name, url_password, may_be_empty=True
    ):
        config["EMAIL_HOST_PASSWORD"] = password
    return {
        key: value
        for key, value in config.items()
        if key.startswith("EMAIL_") and value is not None
    }


def _history_days(variables: Mapping[str, str]) -> float | None:
    """Read how long live runs keep entries that they no longer need; None for ever."""
    name = "SIGNOFF_HISTORY_DAYS"
    text = variables.get(name, "")
    try:
        days = float(text) if text else None
    except ValueError:
        raise InvalidSetting(name, f"must be a number of days, not {text!r}") from None
    if days is not None and not 0 <= days <= retention_rules.MAX_DAYS:
        raise InvalidSetting(name, f"must be from 0 to {retention_rules.MAX_DAYS} days, not {text}")
    return days


def _agents_dir(variables: Mapping[str, str]) -> str:
    """Read the extra folder in which to find the modules of SIGNOFF_AGENTS; empty for none."""
    name = "AGENTS_DIR"
    folder = os.path.expanduser(variables.get(name, ""))  # noqa: PTH111 - empty stays empty
    if folder and not os.path.isdir(folder):  # noqa: PTH112 - Path would raise without permission
        raise InvalidSetting(name, f"is not a folder that can be reached: {folder}")
    return folder


def _list(
    variables: Mapping[str, str],
    name: str,
    is_valid: Callable[[str], bool],
    problem: str,
    *,
    default: str = "",
    ending: str = "",
) -> tuple[str, ...]:
    """Read texts, separated by commas, without this ending. The problem of an invalid one may say it as `{}`."""
    texts = (text.strip().rstrip(ending) for text in variables.get(name, default).split(","))
    items = tuple(filter(None, texts))
    for item in items:
        if not is_valid(item):
            raise InvalidSetting(name, problem.format(item))
    return items


def _seconds(
    variables: Mapping[str, str], name: str, default: float, minimum: float, maximum: float
) -> float:
    text = variables.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        raise InvalidSetting(name, f"must be a number of seconds, not {text!r}") from None
    if not minimum <= value <= maximum:
        raise InvalidSetting(
            name, f"must be between {minimum:.0f} and {maximum:.0f} seconds, not {text}"
        )
    return value


def _rules(variables: Mapping[str, str], name: str) -> tuple[retention_rules.RetentionRule, ...]:
    try:
        return retention_rules.parse(variables.get(name, ""))
    except ValueError as error:
        raise InvalidSetting(name, str(error)) from None


def _number(
    variables: Mapping[str, str], name: str, default: int, minimum: int, maximum: int
) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or not minimum <= int(text[:9]) <= maximum:
        raise InvalidSetting(
            name, f"must be a whole number from {minimum} to {maximum}, not {text!r}"
        )
    return int(text)


def _secret_key(variables: Mapping[str, str]) -> str:
    """Read the secret key; empty without a file. Django then refuses to sign, so no known key is ever used."""
    name = "SECRET_KEY_FILE"
    path = variables.get(name, "")
    if not path:
        return ""
    key = values.content(name, path)
    if len(key) < 50:
        raise InvalidSetting(name, "must hold at least 50 characters")
    return key


def _slack(variables: Mapping[str, str]) -> SlackApp | None:
    """Read the Slack app; None without one."""
    names = ("SIGNOFF_SLACK_TOKEN", "SIGNOFF_SLACK_SECRET")
    token, secret = (values.secret(variables, name) for name in names)
    for name, text in zip(names, (token, secret), strict=True):
        if not text and (token or secret):
            raise InvalidSetting(name, "must be set too: it is of the same app")
    url = values.web_address(variables, "SIGNOFF_SLACK_URL") or "https://slack.com/api"
    decides = values.yes(variables, "SIGNOFF_SLACK_DECISIONS")
    return SlackApp(token=token, secret=secret, url=url, decides=decides) if token else None


def _metrics_token(variables: Mapping[str, str]) -> str:
    """Read the token of /metrics; empty if none is set. A short one could be guessed."""
    name = "SIGNOFF_METRICS_TOKEN"
    token = values.secret(variables, name)
    if token and (
        len(token) < 20 or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise InvalidSetting(name, "must be at least 20 letters, digits and signs, without spaces")
    return token


def _password(
    variables: Mapping[str, str],
    name: str,
    url: str,
    url_password: str | None,
    may_be_empty: bool = False,
) -> str:
    """Read the password of a URL from a file; empty if no file is named."""
    path = variables.get(name, "")
    if not path:
        return ""
    password = values.content(name, path)
    if password and url_password:
        raise InvalidSetting(name, f"and a password in {url} are both set: keep one of them")
    if not password and not may_be_empty:
        raise InvalidSetting(name, f"holds nothing: {path}")
    return password


def _folder(variables: Mapping[str, str], name: str) -> Path | None:
    return Path(variables[name]) if variables.get(name) else None
