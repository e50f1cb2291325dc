"""`make up`: brings everything up on this machine, says so on one screen, keeps it up, and takes it down again."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from config.env import environment
from config.env.errors import BadSetting
from config.local import data_dir as homes
from config.local import demo, http_client, orphans
from config.local import services as machines
from config.local.errors import DidNotStart, Refused
from config.local.processes import logs, sockets, users
from config.local.processes.reload import SECONDS, WITHOUT_AGENTS, Reload
from config.local.processes.supervisor import (
    LOOK,
    Bell,
    Job,
    Stop,
    Supervisor,
)
from config.local.services import Machine

Say = Callable[[str], None]

READY_WITHIN = 90.0
AT_GATES_WITHIN = 20.0
TRIES = 3

# Needed for a first answer and for runs to go on. All others start later, so as not to take processor time from these.
FIRST = ("web", "sweeper", "worker")

# What there is to decide on the first screen: agent and input of the runs that the first start starts.
HR = "agents.flows.hr"
FIRST_RUNS = (
    ("hr_onboarding", "New Hire 1", "newhire1", 2),
    ("hr_onboarding", "New Hire 2", "newhire2", 4),
    ("hr_onboarding_single", "New Hire 3", "newhire3", 1),
)


def up(
    folder: Path,
    *,
    host: str,
    port: int | None,
    given: Mapping[str, str],
    say: Say,
    with_demo: bool | None = None,
    reload: bool = False,
) -> None:
    """Run until SIGINT, SIGTERM or SIGHUP. Raises LocalError if it cannot be brought up.

    `with_demo` is whether to make demo people and runs; None keeps the choice of the start before, at first yes.
    `reload` replaces the workers when a file in the agents' folder changes.
    """
    bell = Bell()
    sockets.require_loopback(host)
    given = _checked(given)
    if reload and not given.get("AGENTS_DIR"):
        raise Refused("RELOAD=1 watches the files of AGENTS_DIR, which is not set")
    demo.check(folder, with_demo)
    servers = users.unprivileged()
    home = homes.open_home(folder, servers)
    if ended := orphans.clear(home):
        say(f"Ended {ended} processes that an earlier start of this folder left behind")
    logs.put_aside(home.logs)
    machine = machines.build(home, bell, servers, sockets.web(host, port), given)
    supervisor = Supervisor(bell, say, lambda pids: orphans.note(home, machine.sockets, pids))
    try:
        require_agents(given.get("AGENTS_DIR", ""), machine.application)
        look = _reloading(machine, supervisor, say) if reload else _nothing
        _explain(machine, say)
        _bring_up(machine, supervisor, host, with_demo, say)
        supervisor.watch(look, every=SECONDS if reload else LOOK)
    except Stop:
        say("Stopping")
    finally:
        supervisor.stop()
        orphans.forget(home, machine.sockets)
    say("Stopped")


def _checked(given: Mapping[str, str]) -> Mapping[str, str]:
    """What was given, with the agents' folder named as every process finds it. Raises Refused."""
    if given.get("AGENTS_DIR"):
        folder = Path(given["AGENTS_DIR"]).expanduser()
        given = {**given, "AGENTS_DIR": os.path.abspath(folder)}  # noqa: PTH100 - links stay
    try:
        environment.read(given)
    except BadSetting as problem:
        raise Refused(str(problem)) from problem
    return given


def require_agents(folder: str, workers: users.Account) -> None:
    """Raises Refused for agents in a folder that workers cannot read; an empty `folder` means none."""
    if folder and not users.reaches(workers, Path(folder)):
        who = workers.name
        raise Refused(
            f"AGENTS_DIR: workers run as {who}, who cannot read {folder};"
            f" put it where {who} can, or start as somebody else than root"
        )


def _explain(machine: Machine, say: Say) -> None:
    """What is not as one would expect, a line each."""
    if machine.servers.switch and not machine.application.switch:
        say(f"Web and worker run as root, because {machine.servers.name} cannot run them from here")
    if machine.home.servers.parent != machine.home.folder and machine.cluster is not None:
        place = machine.home.servers
        say(
            f"Postgres keeps its data in {place}, because {machine.servers.name} cannot reach the folder"
        )


def _bring_up(
    machine: Machine, supervisor: Supervisor, host: str, wanted: bool | None, say: Say
) -> None:
    homes.furnish(machine.home, machine.application)
    if problem := load_agents(machine):
        raise Refused(problem)
    for what, job in (("Postgres", machine.database()), ("the broker", machine.broker())):
        if job is not None:
            say(f"Starting {what}")
            supervisor.start(job)
    for job in machine.others():
        supervisor.start(job)
    say("Preparing the database")
    machine.prepare()
    known = demo.arrive(machine, host, wanted, say)
    machine.home.note(url=machine.url)
    say("Starting web, worker and sweeper")
    jobs = machine.processes()
    first = [job for job in jobs if job.name in FIRST]
    for job in first:
        supervisor.start(job)
    _wait_until_ready(machine, supervisor, first)
    for job in jobs:
        if job not in first:
            supervisor.start(job)
    if known is not None and _has_first_runs(machine):
        say("Starting the first three runs")
        _start_runs(machine, supervisor, known["users"]["ada"]["token"])
        machine.home.note(welcomed=True)
    _show(machine, known, say)


def load_agents(machine: Machine) -> str:
    """Load the agents once, as workers will. What is wrong with them, in one line, or nothing."""
    said = machine.mistake()
    if said is None:
        return ""
    line = said.removeprefix("abeyance: ")
    return line if line != said else f"the agents cannot be loaded: {said}"


def _reloading(machine: Machine, supervisor: Supervisor, say: Say) -> Callable[[], None]:
    """Return the function that looks for files changed from now on."""
    watching = Reload(
        Path(machine.given["AGENTS_DIR"]),
        load=lambda: load_agents(machine),
        replace=lambda: supervisor.replace(_loads_agents),
        say=say,
    )
    return watching.look


def _loads_agents(job: Job) -> bool:
    return job.stage == machines.APPLICATION and job.name not in WITHOUT_AGENTS


def _nothing() -> None:
    """Watch nothing."""


def _wait_until_ready(machine: Machine, supervisor: Supervisor, jobs: Sequence[Job]) -> None:
    """Until /readyz says yes. Raises DidNotStart when a process keeps dying or time is up."""
    deadline = time.monotonic() + READY_WITHIN
    while _lacking(machine):
        machine.bell.pause(0.1)
        supervisor.tend()
        for job in jobs:
            if supervisor.ends(job.name) >= TRIES:
                said = logs.last_line(machine.home.logs, job.name) or "it said nothing"
                raise DidNotStart(f"{job.name} does not start: {said} (see {machine.home.logs})")
        if time.monotonic() > deadline:
            raise DidNotStart(
                f"not ready within {READY_WITHIN:g} s: {_lacking(machine)} (see {machine.home.logs})"
            )


def _lacking(machine: Machine) -> str:
    """What is not there yet, as /readyz says it; empty when it is ready."""
    try:
        status, said = http_client.ask(machine.url, "GET", "/readyz")
    except http_client.Unreachable as problem:
        return f"web does not answer: {problem}"
    if status == 200:
        return ""
    checks = said.get("checks", {}) if isinstance(said, dict) else {}
    lacking = [name for name, holds in checks.items() if not holds]
    return f"/readyz lacks {', '.join(lacking)}" if lacking else f"/readyz answers {status}"


def _has_first_runs(machine: Machine) -> bool:
    """Whether they are still to be started, and their agents among those of the workers."""
    return HR in environment.read(machine.given).agents and not machine.home.recall("welcomed")


def _start_runs(machine: Machine, supervisor: Supervisor, token: str) -> None:
    """Over the API as anybody would; a start that was cut off repeats it without a second run."""
    waiting = [_start_run(machine.url, token, *run) for run in FIRST_RUNS]
    deadline = time.monotonic() + AT_GATES_WITHIN
    while waiting and time.monotonic() < deadline:
        machine.bell.pause(0.1)
        supervisor.tend()
        waiting = [run for run in waiting if _status(machine.url, token, run) != "suspended"]


def _start_run(url: str, token: str, agent: str, full_name: str, username: str, level: int) -> str:
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
    status, said = http_client.ask(url, "POST", "/api/v1/runs", token=token, body=body)
    if status not in (200, 201):
        raise DidNotStart(f"the first runs were not started: {status} {said}")
    return str(said["id"])


def _status(url: str, token: str, run: str) -> str:
    _, said = http_client.ask(url, "GET", f"/api/v1/runs/{run}", token=token)
    return str(said["status"]) if said else ""


def _show(machine: Machine, known: dict[str, Any] | None, say: Say) -> None:
    """The one screen."""
    lines = ["", f"Abeyance is ready at {machine.url}", ""]
    if known is not None:
        bea = known["users"]["bea"]["password"]
        lines.append(f"  Log in   as bea with the password {bea}")
        lines.append(
            f"           (ada, cyril, admin and everybody's API tokens: {machine.home.credentials})"
        )
    else:
        lines.append(f"  Admins   are made with {demo.advice(machine.home)}")
    lines += [
        f"  Data     {machine.home.folder}",
        f"  Logs     {machine.home.logs}",
        "  Stop     Ctrl-C",
        "",
    ]
    say("\n".join(lines))
