"""Builds the environment of the application's processes on one machine, and of `make manage`."""

from collections.abc import Mapping
from pathlib import Path

from config.env import environment
from config.local.data_dir import DataDir
from config.local.processes import spawn
from config.local.processes.users import Account
from config.local.servers import postgres

# The agents of the demonstration
HR = "agents.flows.hr"
INVOICES = "agents.flows.invoices"


def build_variables(
    home: DataDir,
    environ: Mapping[str, str],
    *,
    database: str,
    broker: str,
    directory_port: int,
    mailbox_port: int,
    url: str,
) -> dict[str, str]:
    """Return the variables that this data folder sets. Given addresses of real systems are kept."""
    invoices = str(locate_invoices_folder(home)) if has_books(environ) else ""
    watched = (environ.get("SIGNOFF_WATCHED_FOLDERS"), invoices)
    return {
        "DATABASE_URL": database,
        "REDIS_URL": broker,
        "SCIM_URL": environ.get("SCIM_URL") or build_scim_url(directory_port),
        "SCIM_TOKEN": read_scim_token(home, environ),
        "EMAIL_URL": environ.get("EMAIL_URL") or f"smtp://127.0.0.1:{mailbox_port}",
        "KEYS_DIR": str(home.folder / "keys"),
        "SIGNOFF_LEDGER": environ.get("SIGNOFF_LEDGER") or str(home.folder / "ledger" / "ledger"),
        "SIGNOFF_OBJECT_STORE": environ.get("SIGNOFF_OBJECT_STORE") or str(home.folder / "objects"),
        # Demo people must be able to decide at once.
        "SIGNOFF_COOLING_OFF_SECONDS": environ.get("SIGNOFF_COOLING_OFF_SECONDS")
        or ("0" if home.get("demo") else ""),
        "SIGNOFF_AGENTS": ",".join(choose_agents(environ)),
        "SIGNOFF_WATCHED_FOLDERS": ",".join(filter(None, watched)),
        "SECRET_KEY_FILE": str(home.secret_key),
        "STATIC_ROOT": str(home.folder / "static"),
        "PUBLIC_URL": url,
        "SIGNOFF_INSTANCE": home.id[:8],
        "PYTHONUNBUFFERED": "1",
        spawn.MARK: home.id,
    }


def choose_agents(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the given modules with agents, else the demonstration; its books are in the embedded Postgres."""
    if environ.get("SIGNOFF_AGENTS") or environ.get("DATABASE_URL"):
        return environment.read(environ).agents
    return (HR, INVOICES)


def has_books(environ: Mapping[str, str]) -> bool:
    """Return whether the demonstration has its invoices, and so the books."""
    return INVOICES in choose_agents(environ) and not environ.get("DATABASE_URL")


def locate_invoices_folder(home: DataDir) -> Path:
    """Return the folder whose files are invoices."""
    return home.folder / "invoices"


def list_roles_to_grant() -> dict[str, str]:
    """Return the roles to which `prepare` grants rights, as the owner of the embedded database's tables."""
    return {"SIGNOFF_WEB_ROLE": postgres.WEB, "SIGNOFF_WORKER_ROLE": postgres.WORKER}


def build_scim_url(port: int) -> str:
    """Return the address of the embedded directory."""
    return f"http://127.0.0.1:{port}/v2"


def read_scim_token(home: DataDir, environ: Mapping[str, str]) -> str:
    """Return the given token of a real directory, else the embedded directory's own."""
    if environ.get("SCIM_URL"):
        return environ.get("SCIM_TOKEN", "")
    return home.secret("scim")


def build_inherited_variables(
    environ: Mapping[str, str], application: Account, folder: Path
) -> dict[str, str]:
    """Return the inherited variables of the application. Another account gets its own HOME."""
    variables = spawn.build_plain_environment() | dict(environ)
    if application.switch:
        variables |= {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    # The directory is on loopback, which a proxy cannot reach.
    for name in ("NO_PROXY", "no_proxy"):
        hosts = [environ[name]] if environ.get(name) else []
        variables[name] = ",".join([*hosts, "127.0.0.1", "localhost"])
    return variables
