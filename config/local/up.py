"""`make up`: starts everything on this machine, shows one screen, keeps all services running, and stops them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from config.env import environment
from config.env.values import InvalidSetting
from config.local import app_environment, data_dir, demo, http_client, orphans, services
from config.local.errors import DidNotStart, Refused
from config.local.processes import sockets, users
from config.local.processes.supervisor import (
    Service,
    SignalPipe,
    Stop,
    Supervisor,
    read_last_line,
    rotate_logs,
)
from config.local.services import Stack

Say = Callable[[str], None]

READY_WITHIN = 90.0
AT_GATES_WITHIN = 20.0
TRIES = 3

# Needed to answer requests and to resume runs. All others start later, because they would take processor time.
FIRST = ("web", "sweeper", "worker")

# The runs that the first start creates, for a first screen with approvals: agent and input.
FIRST_RUNS = (
    ("hr_onboarding", "New Hire 1", "newhire1", 2),
    ("hr_onboarding", "New Hire 2", "newhire2", 4),
    ("hr_onboarding_single", "New Hire 3", "newhire3", 1),
)


def run_stack(
    folder: Path,
    *,
    host: str,
    port: int | None,
    environ: Mapping[str, str],
    say: Say,
    with_demo: bool | None = None,
    reload: bool = False,
) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP. Raise LocalError if a service does not start.

    `with_demo` tells whether to make demo people and runs. None repeats the last choice; the first start makes them.
    `reload` replaces the workers when a file in the agents' folder changes.
    """
    pipe = SignalPipe()
    sockets.require_loopback(host)
    environ = _check_variables(environ)
    if reload and not environ.get("AGENTS_DIR"):
        raise Refused("RELOAD=1 watches the files of AGENTS_DIR, which is not set")
    demo.check(folder, with_demo)
    servers = users.find_unprivileged_account()
    home = data_dir.open_home(folder, servers)
    if ended := orphans.clear(home):
        say(f"Ended {ended} processes that an earlier start of this folder left behind")
    rotate_logs(home.logs)
    stack = services.build(home, pipe, servers, sockets.listen_for_web(host, port), environ)
    supervisor = Supervisor(
        pipe, say, lambda pids: orphans.record_processes(home, stack.sockets, pids)
    )
    try:
        require_agents(environ.get("AGENTS_DIR", ""), stack.application)
        reloading = None
        if reload:  # files that change from now on
            reloading = Reload(
                Path(environ["AGENTS_DIR"]),
                load=lambda: load_agents(stack),
                replace=lambda: supervisor.replace(
                    lambda service: (
                        service.stop_order == services.APPLICATION
                        and service.name not in WITHOUT_AGENTS
                    )
                ),
                say=say,
            )
        _explain(stack, say)
        _start_all(stack, supervisor, host, with_demo, say)
        if reloading is None:
            supervisor.watch()
        else:
            supervisor.watch(reloading.check, every=RELOAD_SECONDS)
    except Stop:
        say("Stopping")
    finally:
        supervisor.stop()
        orphans.remove(home, stack.sockets)
    say("Stopped")


def _check_variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables with an absolute AGENTS_DIR. Raise Refused for an invalid one."""
    if environ.get("AGENTS_DIR"):
        folder = Path(environ["AGENTS_DIR"]).expanduser()
        environ = {**environ, "AGENTS_DIR": os.path.abspath(folder)}  # noqa: PTH100 - links stay
    try:
        environment.read(environ)
    except InvalidSetting as problem:
        raise Refused(str(problem)) from problem
    return environ


def require_agents(folder: str, workers: users.Account) -> None:
    """Raise Refused if workers cannot read the agents' folder; an empty `folder` means none."""
    if folder and not users.can_access(workers, Path(folder)):
        who = workers.name
        raise Refused(
            f"AGENTS_DIR: workers run as {who}, who cannot read {folder};"
            f" move it to a folder that {who} can read, or start as an account other than root"
        )


def _explain(stack: Stack, say: Say) -> None:
    """Print one line for each unusual choice of account or folder."""
    if stack.servers.switch and not stack.application.switch:
        say(f"Web and worker run as root, because {stack.servers.name} cannot run them from here")
    if stack.home.servers.parent != stack.home.folder and stack.cluster is not None:
        folder = stack.home.servers
        say(
            f"Postgres keeps its data in {folder}, because {stack.servers.name} cannot reach the folder"
        )


def _start_all(
    stack: Stack, supervisor: Supervisor, host: str, with_demo: bool | None, say: Say
) -> None:
    data_dir.make_folders(stack.home, stack.application)
    if problem := load_agents(stack):
        raise Refused(problem)
    for label, service in (
        ("Postgres", stack.build_database_service()),
        ("the broker", stack.build_broker_service()),
    ):
        if service is not None:
            say(f"Starting {label}")
            supervisor.start(service)
    for service in stack.build_side_services():
        supervisor.start(service)
    say("Preparing the database")
    stack.prepare()
    credentials = demo.ensure_demo(stack, host, with_demo, say)
    stack.home.set(url=stack.url)
    say("Starting web, worker and sweeper")
    services = stack.build_process_services()
    first = [service for service in services if service.name in FIRST]
    for service in first:
        supervisor.start(service)
    _wait_until_ready(stack, supervisor, first)
    for service in services:
        if service not in first:
            supervisor.start(service)
    has_their_agents = app_environment.HR in app_environment.choose_agents(stack.environ)
    if credentials is not None and has_their_agents and not stack.home.get("welcomed"):
        say("Starting the first three runs")
        _start_runs(stack, supervisor, credentials["users"]["ada"]["token"])
        stack.home.set(welcomed=True)
    if credentials is not None and app_environment.has_books(stack.environ):
        demo.ensure(stack, credentials["users"]["ada"]["token"], say)
    _show(stack, credentials, say)


def load_agents(stack: Stack) -> str:
    """Load the agents once, as workers do. Return their mistake in one line, empty if there is none."""
    mistake = stack.find_agents_mistake()
    if mistake is None:
        return ""
    line = mistake.removeprefix("signoff: ")
    return line if line != mistake else f"the agents cannot be loaded: {mistake}"


def _wait_until_ready(stack: Stack, supervisor: Supervisor, services: Sequence[Service]) -> None:
    """Wait until /readyz answers 200. Raise DidNotStart if a process keeps dying or the time is up."""
    deadline = time.monotonic() + READY_WITHIN
    while _find_lacking_parts(stack):
        stack.pipe.pause(0.1)
        supervisor.check()
        for service in services:
            if supervisor.ends(service.name) >= TRIES:
                message = read_last_line(stack.home.logs, service.name) or "it said nothing"
                raise DidNotStart(
                    f"{service.name} does not start: {message} (see {stack.home.logs})"
                )
        if time.monotonic() > deadline:
            raise DidNotStart(
                f"not ready within {READY_WITHIN:g} s: {_find_lacking_parts(stack)} (see {stack.home.logs})"
            )


def _find_lacking_parts(stack: Stack) -> str:
    """Return the missing parts as /readyz names them; empty when it is ready."""
    try:
        status, reply = http_client.request(stack.url, "GET", "/readyz")
    except http_client.Unreachable as problem:
        return f"web does not answer: {problem}"
    if status == 200:
        return ""
    checks = reply.get("checks", {}) if isinstance(reply, dict) else {}
    lacking = [name for name, holds in checks.items() if not holds]
    return f"/readyz lacks {', '.join(lacking)}" if lacking else f"/readyz answers {status}"


def _start_runs(stack: Stack, supervisor: Supervisor, token: str) -> None:
    """Start the first runs over the API. The business keys keep a repeated start from creating them twice."""
    waiting = []
    for agent, full_name, username, level in FIRST_RUNS:
        body = {
            "agent": agent,
            "input": {
                "full_name": full_name,
                "email": f"{username}@example.org",
                "username": username,
                "security_level": level,
            },
            "business_key": f"first-{username}",
        }
        status, run = http_client.request(stack.url, "POST", "/api/v1/runs", token=token, body=body)
        if status not in (200, 201):
            raise DidNotStart(f"the first runs were not started: {status} {run}")
        waiting.append(f"/api/v1/runs/{run['id']}")
    deadline = time.monotonic() + AT_GATES_WITHIN
    while waiting and time.monotonic() < deadline:
        stack.pipe.pause(0.1)
        supervisor.check()
        runs = {
            path: http_client.request(stack.url, "GET", path, token=token)[1] for path in waiting
        }
        waiting = [path for path, run in runs.items() if not run or run["status"] != "suspended"]


def _show(stack: Stack, credentials: dict[str, Any] | None, say: Say) -> None:
    """Print the screen with the address and the login."""
    lines = ["", f"Signoff is ready at {stack.url}", ""]
    if credentials is not None:
        bea = credentials["users"]["bea"]["password"]
        lines.append(f"  Log in   as bea with the password {bea}")
        lines.append(
            f"           (ada, cyril, admin and everybody's API tokens: {stack.home.credentials})"
        )
    else:
        lines.append(f"  Admins   are made with {demo.describe_next_step(stack.home)}")
    lines += [
        f"  Data     {stack.home.folder}",
        f"  Logs     {stack.home.logs}",
        "  Stop     Ctrl-C",
        "",
    ]
    say("\n".join(lines))


RELOAD_SECONDS = 1.0  # between two checks
WITHOUT_AGENTS = ("web", "sweeper")  # processes that load no agents


class Reload:
    """Looks for changed files. `load` loads the agents once and returns their mistakes as a text.

    `replace` drains the workers and starts new ones. If there is a mistake, the old workers keep running.
    """

    def __init__(
        self,
        folder: Path,
        *,
        load: Callable[[], str],
        replace: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._load = load
        self._replace = replace
        self._say = say
        self._fingerprints = _read_file_states(folder)

    def check(self) -> None:
        """Replace the workers if a file has changed and the agents load."""
        fingerprints = _read_file_states(self._folder)
        differing = {path for path, _ in self._fingerprints.items() ^ fingerprints.items()}
        self._fingerprints = fingerprints
        if not differing:
            return
        if problem := self._load():
            self._say(f"Not reloaded: {problem}")
            return
        self._say(f"Reloading, because {min(differing)} has changed")
        self._replace()


def _read_file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the time of the last change and the size of each Python file in the folder."""
    fingerprints = {}
    for parent, folders, files in os.walk(folder):
        # Hidden folders are skipped: an environment or a repository has thousands of files.
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for path in (Path(parent, name) for name in files if name.endswith(".py")):
            with suppress(OSError):  # removed since it was listed
                stat = path.stat()
                fingerprints[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return fingerprints
