"""The environment, read and checked once. An invalid value ends the process with one line that names the variable.

Each field says how it is read, and from which variable; `config.settings` gives it to Django. It also names the first
invalid value: fields are read from top to bottom.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

from agents.endpoints import Endpoint
from approvals.rules.identity_providers import IdentityProvider, SlackApp
from config.env import values
from config.env.values import READ, InvalidSetting, variable
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.limits import KEPT_INLINE, MAX_RESULT
from runtime.store.object_stores.stores import SCHEMES
from runtime.upkeep.retention_rules import MAX_DAYS, RetentionRule

MINUTE = 60.0
DAY = 24 * 60 * MINUTE
DRAIN_SECONDS = 30.0
MAX_WORKERS = 64
MAX_STREAM = 200  # characters of the name of a stream
ROLES = "SIGNOFF_WEB_ROLE or SIGNOFF_WORKER_ROLE"
CORES = len(os.sched_getaffinity(0))  # that this process may use

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class EnvironmentVariables:
    """All variables of the application, parsed for Django's settings. No text shows them: some are secrets."""

    public_url: str = variable(values.public_url)
    log_level: str = variable(values.log_level)

    # Postgres, the broker, the directory, the object store, the mail server
    database: dict[str, Any] = variable(values.database)
    web_role: str | None = variable(values.role, "SIGNOFF_WEB_ROLE", "SIGNOFF_WORKER_ROLE")
    web_password: str = variable(values.password, "SIGNOFF_WEB_PASSWORD_FILE", ROLES)
    worker_password: str = variable(values.password, "SIGNOFF_WORKER_PASSWORD_FILE", ROLES)
    worker_role: str | None = variable(values.role, "SIGNOFF_WORKER_ROLE", "SIGNOFF_WEB_ROLE")
    unsafe_postgres: bool = variable(values.yes, "SIGNOFF_UNSAFE_POSTGRES")
    prepared_statements: bool = variable(values.yes, "SIGNOFF_PREPARED_STATEMENTS", default="yes")
    redis_url: str = variable(values.redis_url)
    streams: tuple[str, ...] = variable(
        values.texts,
        "SIGNOFF_STREAMS",
        lambda name: len(name) <= MAX_STREAM and name.isprintable(),
        f"must have names of at most {MAX_STREAM} characters",
    )
    streams_url: str = variable(values.streams_url)
    scim_url: str = variable(values.web_address, "SCIM_URL")
    scim_token: str = variable(values.secret, "SCIM_TOKEN")
    object_store: str = variable(
        values.text,
        "SIGNOFF_OBJECT_STORE",
        lambda address: address.startswith(("/", *SCHEMES)),
        f"must be a folder from / on, or start with {' '.join(SCHEMES)}",
        ending="/",
    )
    object_bytes: int = variable(
        values.number, "SIGNOFF_OBJECT_BYTES", KEPT_INLINE, KEPT_INLINE, MAX_RESULT
    )
    email: dict[str, Any] = variable(values.email)
    email_sender: str = variable(values.text, "EMAIL_SENDER", default="Signoff <signoff@localhost>")

    # Agents and their models
    openai_base_url: str = variable(values.web_address, "OPENAI_BASE_URL")
    openai_api_key: str = variable(values.secret, "OPENAI_API_KEY")
    anthropic_base_url: str = variable(values.web_address, "ANTHROPIC_BASE_URL")
    anthropic_api_key: str = variable(values.secret, "ANTHROPIC_API_KEY")
    providers: Mapping[str, Endpoint] = variable(values.model_providers)
    agents: tuple[str, ...] = variable(
        values.texts,
        "SIGNOFF_AGENTS",
        lambda module: all(part.isidentifier() for part in module.split(".")),
        "names {!r}, which is not a Python module",
        default="agents.flows.hr",
    )
    agents_dir: str = variable(values.agents_dir)
    model: str = variable(values.model)

    # Times, counts, retention, the budget of a run
    lease_seconds: float = variable(values.time, "SIGNOFF_LEASE_SECONDS", 10.0, 1, 600)
    approval_seconds: float = variable(
        values.time, "SIGNOFF_APPROVAL_SECONDS", 7 * DAY, MINUTE, 365 * DAY
    )
    outage_seconds: float = variable(values.time, "SIGNOFF_OUTAGE_SECONDS", DAY, MINUTE, 365 * DAY)
    drain_seconds: float = variable(values.time, "SIGNOFF_DRAIN_SECONDS", DRAIN_SECONDS, 1, 30)
    retention: tuple[RetentionRule, ...] = variable(values.rules, "SIGNOFF_RETENTION")
    archive: tuple[RetentionRule, ...] = variable(values.rules, "SIGNOFF_ARCHIVE")
    history_days: float | None = variable(
        values.time, "SIGNOFF_HISTORY_DAYS", None, 0, MAX_DAYS, "days"
    )
    poison_losses: int = variable(values.number, "SIGNOFF_POISON_LOSSES", 3, 1, 100)
    workers: int = variable(
        values.number, "SIGNOFF_WORKERS", min(CORES, MAX_WORKERS), 1, MAX_WORKERS
    )
    undo_seconds: float = variable(values.time, "SIGNOFF_UNDO_SECONDS", 10.0, 0, 300)
    use_seconds: float = variable(values.time, "SIGNOFF_USE_SECONDS", 300.0, 10, DAY)
    gateway_seconds: float = variable(values.time, "SIGNOFF_GATEWAY_SECONDS", 50.0, 1, 600)
    cooling_off_seconds: float = variable(
        values.time, "SIGNOFF_COOLING_OFF_SECONDS", DAY, 0, 365 * DAY
    )
    budget: BudgetLimits | None = variable(values.budget)

    # Keys, ledger, static files, watched folders and buckets
    keys_dir: Path = variable(values.path, "KEYS_DIR", ROOT / "var" / "keys")
    ledger: Path | None = variable(values.path, "SIGNOFF_LEDGER", None)
    worker_keys_dir: Path | None = variable(values.path, "WORKER_KEYS_DIR", None)
    import_keys: tuple[Path, ...] = variable(
        values.paths,
        "SIGNOFF_IMPORT_KEYS",
        os.path.exists,  # Path would raise without permission
        "names a file or folder that does not exist: {}",
    )
    watched_folders: tuple[Path, ...] = variable(
        values.paths,  # They may be missing here: the sweeper alone reads them.
        "SIGNOFF_WATCHED_FOLDERS",
        lambda path: (
            path.startswith("/") and ".." not in Path(path).parts and len(Path(path).parts) > 1
        ),
        "must have paths from / on, without .., not {!r}",
    )
    watched_buckets: tuple[str, ...] = variable(
        values.texts,
        "SIGNOFF_WATCHED_BUCKETS",
        lambda address: address.startswith(SCHEMES) and not address.endswith(":"),
        f"must have addresses from {' '.join(SCHEMES)} on",
        ending="/",
    )
    secret_key: str = variable(values.secret_key)
    static_root: Path = variable(values.path, "STATIC_ROOT", ROOT / "staticfiles")

    # Webhooks and notices
    loopback_webhooks: bool = variable(values.loopback_webhooks)
    internal_webhooks: tuple[IPv4Network | IPv6Network, ...] = variable(values.internal_webhooks)
    notices: Mapping[str, str] = variable(values.notices)

    # How people and programs reach the web process, where people sign in, and where they may decide
    behind_proxy: bool = variable(values.behind_proxy)
    allowed_hosts: tuple[str, ...] = variable(values.allowed_hosts)
    instance: str = variable(
        values.text, "SIGNOFF_INSTANCE", str.isalnum, "must be letters and digits, not {!r}"
    )
    oidc: Mapping[str, IdentityProvider] = variable(values.identity_providers)
    slack: SlackApp | None = variable(values.slack)
    mcp_decisions: bool = variable(values.yes, "SIGNOFF_MCP_DECISIONS")
    metrics_token: str = variable(values.metrics_token)


def load(variables: Mapping[str, str]) -> EnvironmentVariables:
    """Read and check all variables. End the process with one line if a value is invalid."""
    try:
        return read(variables)
    except InvalidSetting as problem:
        raise SystemExit(f"signoff: {problem}") from None


def read(variables: Mapping[str, str]) -> EnvironmentVariables:
    """Read all variables. Raise InvalidSetting for the first invalid value."""
    return EnvironmentVariables(
        **{item.name: item.metadata[READ](variables) for item in fields(EnvironmentVariables)}
    )
