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

    public_url: str = variable(values.read_public_url)
    log_level: str = variable(values.read_log_level)

    # Postgres, the broker, the directory, the object store, the mail server
    database: dict[str, Any] = variable(values.read_database_settings)
    web_role: str | None = variable(values.read_role, "SIGNOFF_WEB_ROLE", "SIGNOFF_WORKER_ROLE")
    web_password: str = variable(values.read_password, "SIGNOFF_WEB_PASSWORD_FILE", ROLES)
    worker_password: str = variable(values.read_password, "SIGNOFF_WORKER_PASSWORD_FILE", ROLES)
    worker_role: str | None = variable(values.read_role, "SIGNOFF_WORKER_ROLE", "SIGNOFF_WEB_ROLE")
    unsafe_postgres: bool = variable(values.read_yes_or_no, "SIGNOFF_UNSAFE_POSTGRES")
    prepared_statements: bool = variable(
        values.read_yes_or_no, "SIGNOFF_PREPARED_STATEMENTS", default="yes"
    )
    redis_url: str = variable(values.read_redis_url)
    streams: tuple[str, ...] = variable(
        values.read_texts,
        "SIGNOFF_STREAMS",
        lambda name: len(name) <= MAX_STREAM and name.isprintable(),
        f"must have names of at most {MAX_STREAM} characters",
    )
    streams_url: str = variable(values.read_streams_url)
    scim_url: str = variable(values.read_web_address, "SCIM_URL")
    scim_token: str = variable(values.read_secret, "SCIM_TOKEN")
    object_store: str = variable(
        values.read_text,
        "SIGNOFF_OBJECT_STORE",
        lambda address: address.startswith(("/", *SCHEMES)),
        f"must be a folder from / on, or start with {' '.join(SCHEMES)}",
        ending="/",
    )
    object_bytes: int = variable(
        values.read_number, "SIGNOFF_OBJECT_BYTES", KEPT_INLINE, KEPT_INLINE, MAX_RESULT
    )
    email: dict[str, Any] = variable(values.read_email_settings)
    email_sender: str = variable(
        values.read_text, "EMAIL_SENDER", default="Signoff <signoff@localhost>"
    )

    # Agents and their models
    openai_base_url: str = variable(values.read_web_address, "OPENAI_BASE_URL")
    openai_api_key: str = variable(values.read_secret, "OPENAI_API_KEY")
    anthropic_base_url: str = variable(values.read_web_address, "ANTHROPIC_BASE_URL")
    anthropic_api_key: str = variable(values.read_secret, "ANTHROPIC_API_KEY")
    providers: Mapping[str, Endpoint] = variable(values.read_model_providers)
    agents: tuple[str, ...] = variable(
        values.read_texts,
        "SIGNOFF_AGENTS",
        lambda module: all(part.isidentifier() for part in module.split(".")),
        "names {!r}, which is not a Python module",
        default="agents.flows.hr",
    )
    agents_dir: str = variable(values.read_agents_dir)
    model: str = variable(values.read_models)

    # Times, counts, retention, the budget of a run
    lease_seconds: float = variable(values.read_time, "SIGNOFF_LEASE_SECONDS", 10.0, 1, 600)
    approval_seconds: float = variable(
        values.read_time, "SIGNOFF_APPROVAL_SECONDS", 7 * DAY, MINUTE, 365 * DAY
    )
    outage_seconds: float = variable(
        values.read_time, "SIGNOFF_OUTAGE_SECONDS", DAY, MINUTE, 365 * DAY
    )
    drain_seconds: float = variable(values.read_time, "SIGNOFF_DRAIN_SECONDS", DRAIN_SECONDS, 1, 30)
    retention: tuple[RetentionRule, ...] = variable(
        values.read_retention_rules, "SIGNOFF_RETENTION"
    )
    archive: tuple[RetentionRule, ...] = variable(values.read_retention_rules, "SIGNOFF_ARCHIVE")
    history_days: float | None = variable(
        values.read_time, "SIGNOFF_HISTORY_DAYS", None, 0, MAX_DAYS, "days"
    )
    poison_losses: int = variable(values.read_number, "SIGNOFF_POISON_LOSSES", 3, 1, 100)
    workers: int = variable(
        values.read_number, "SIGNOFF_WORKERS", min(CORES, MAX_WORKERS), 1, MAX_WORKERS
    )
    undo_seconds: float = variable(values.read_time, "SIGNOFF_UNDO_SECONDS", 10.0, 0, 300)
    use_seconds: float = variable(values.read_time, "SIGNOFF_USE_SECONDS", 300.0, 10, DAY)
    gateway_seconds: float = variable(values.read_time, "SIGNOFF_GATEWAY_SECONDS", 50.0, 1, 600)
    cooling_off_seconds: float = variable(
        values.read_time, "SIGNOFF_COOLING_OFF_SECONDS", DAY, 0, 365 * DAY
    )
    budget: BudgetLimits | None = variable(values.read_budget_limits)

    # Keys, ledger, static files, watched folders and buckets
    keys_dir: Path = variable(values.read_path, "KEYS_DIR", ROOT / "var" / "keys")
    ledger: Path | None = variable(values.read_path, "SIGNOFF_LEDGER", None)
    worker_keys_dir: Path | None = variable(values.read_path, "WORKER_KEYS_DIR", None)
    import_keys: tuple[Path, ...] = variable(
        values.read_paths,
        "SIGNOFF_IMPORT_KEYS",
        os.path.exists,  # Path would raise without permission
        "names a file or folder that does not exist: {}",
    )
    watched_folders: tuple[Path, ...] = variable(
        values.read_paths,  # They may be missing here: the sweeper alone reads them.
        "SIGNOFF_WATCHED_FOLDERS",
        lambda path: (
            path.startswith("/") and ".." not in Path(path).parts and len(Path(path).parts) > 1
        ),
        "must have paths from / on, without .., not {!r}",
    )
    watched_buckets: tuple[str, ...] = variable(
        values.read_texts,
        "SIGNOFF_WATCHED_BUCKETS",
        lambda address: address.startswith(SCHEMES) and not address.endswith(":"),
        f"must have addresses from {' '.join(SCHEMES)} on",
        ending="/",
    )
    secret_key: str = variable(values.read_secret_key)
    static_root: Path = variable(values.read_path, "STATIC_ROOT", ROOT / "staticfiles")

    # Webhooks and notices
    loopback_webhooks: bool = variable(values.read_loopback_webhooks)
    internal_webhooks: tuple[IPv4Network | IPv6Network, ...] = variable(
        values.read_internal_webhooks
    )
    notices: Mapping[str, str] = variable(values.read_notice_contents)

    # How people and programs reach the web process, where people sign in, and where they may decide
    behind_proxy: bool = variable(values.read_behind_proxy)
    allowed_hosts: tuple[str, ...] = variable(values.read_allowed_hosts)
    instance: str = variable(
        values.read_text, "SIGNOFF_INSTANCE", str.isalnum, "must be letters and digits, not {!r}"
    )
    oidc: Mapping[str, IdentityProvider] = variable(values.read_identity_providers)
    slack: SlackApp | None = variable(values.read_slack_app)
    mcp_decisions: bool = variable(values.read_yes_or_no, "SIGNOFF_MCP_DECISIONS")
    metrics_token: str = variable(values.read_metrics_token)


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
