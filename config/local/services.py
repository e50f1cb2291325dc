"""Builds the services of this machine: the embedded servers and the processes of the table."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from config.env import environment as env
from config.env.environment import ROOT
from config.local import app_environment as environment
from config.local import orphans
from config.local.data_dir import DataDir
from config.local.errors import DidNotStart, Ended, Refused
from config.local.processes import sockets, spawn, supervisor, users
from config.local.processes.supervisor import Service, SignalPipe
from config.local.servers import binaries, books, broker, postgres
from config.local.servers.directory import TOKEN_VARIABLE
from config.processes import Process, count_connections, list_processes

APPLICATION, SERVERS, DATABASE = 1, 2, 3  # stop order
CALLS_TOOLS = ("worker", "isolated")  # processes
MAX_SOCKET_PATH_BYTES = 103  # bytes of a path; the lowest limit among operating systems


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What the services of one start share: accounts, sockets, servers. `sockets` is a folder for this start only."""

    home: DataDir
    pipe: SignalPipe
    sockets: Path
    servers: users.Account
    application: users.Account
    web: socket.socket
    directory: socket.socket
    mailbox: socket.socket
    cluster: postgres.Cluster | None
    queue: broker.Broker | None
    environ: Mapping[str, str]

    @property
    def url(self) -> str:
        """The address of the web server."""
        host, port = self.web.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def scim_url(self) -> str:
        """The address of the SCIM directory: the given one, else the embedded one's."""
        port = sockets.read_port(self.directory)
        return self.environ.get("SCIM_URL") or environment.build_scim_url(port)

    def build_environment(self, role: str = postgres.WEB) -> dict[str, str]:
        """Return the environment of the application's processes that log in to Postgres as this role."""
        if self.cluster is None:
            database = self.environ["DATABASE_URL"]
        else:
            password = postgres.read_roles(self.home).passwords[role]
            database = postgres.build_postgres_url(self.cluster.socket, role, password)
        settings = environment.build_variables(
            self.home,
            self.environ,
            database=database,
            broker=self.queue.url() if self.queue else self.environ["REDIS_URL"],
            directory_port=sockets.read_port(self.directory),
            mailbox_port=sockets.read_port(self.mailbox),
            url=self.url,
        )
        if self.cluster is not None and role == postgres.OWNER:
            settings |= environment.list_roles_to_grant()
        return (
            environment.build_inherited_variables(self.environ, self.application, self.sockets)
            | settings
        )

    def build_database_service(self) -> Service | None:
        """Return the service of the embedded Postgres. It creates the cluster at the first start."""
        cluster = self.cluster
        if cluster is None:
            return None
        postgres.initialise(cluster)
        number = count_connections(env.read(self.environ).workers)
        settings = postgres.DURABLE | {"max_connections": str(number)}

        def start() -> subprocess.Popen[bytes]:
            orphans.end_orphans(cluster.data)
            postgres.unlock(cluster)  # we have locked the folder, and no process is left in it
            with self._log("postgres") as log:
                return postgres.start(
                    cluster,
                    log,
                    settings,
                    pause=self.pipe.pause,
                    arrange=self._arrange,
                )

        # SIGINT is Postgres' fast shutdown.
        return Service(
            name="postgres",
            start=start,
            stop_order=DATABASE,
            stop_timeout=3.5,
            stop_signal=signal.SIGINT,
        )

    def _arrange(self, cluster: postgres.Cluster) -> None:
        """Create the databases and their roles. Raise psycopg.OperationalError while the server does not answer."""
        postgres.read_roles(self.home).arrange(cluster)
        if environment.has_books(self.environ):
            books.read_books(self.home).arrange(cluster.url)

    def build_broker_service(self) -> Service | None:
        """Return the service of the embedded broker."""
        queue = self.queue
        if queue is None:
            return None

        def start() -> subprocess.Popen[bytes]:
            with self._log("broker") as log:
                return broker.start(queue, log, pause=self.pipe.pause)

        return Service(name="broker", start=start, stop_order=SERVERS, stop_timeout=1.5)

    def build_side_services(self) -> list[Service]:
        """Return the services of the directory and the mailbox, unless real ones are given."""
        services = []
        if not self.environ.get("SCIM_URL"):
            services.append(
                self._server(
                    "directory",
                    self.directory,
                    self.home.folder / "directory" / "directory.sqlite3",
                    module="config.local.servers.directory.server",
                    secrets={TOKEN_VARIABLE: environment.read_scim_token(self.home, self.environ)},
                )
            )
        if not self.environ.get("EMAIL_URL"):
            services.append(
                self._server(
                    "mailbox",
                    self.mailbox,
                    self.home.folder / "mail",
                    module="config.local.servers.mailbox",
                    secrets={},
                )
            )
        return services

    def build_process_services(self) -> list[Service]:
        """Return the services of the table, with the configured number of workers, each pinned to a core."""
        settings = env.read(self.environ)
        services = []
        for process in list_processes(
            bind=f"fd://{self.web.fileno()}", drain=settings.drain_seconds
        ):
            if process.name != "worker":
                services.append(self._process(process, process.name))
                continue
            cores = itertools.cycle(
                spawn.list_cores() or (None,)
            )  # None: this system cannot pin a process
            for number, core in zip(range(settings.workers), cores, strict=False):
                name = f"{process.name}-{number + 1}" if number else process.name
                services.append(self._process(process, name, core))
        return services

    def prepare(self) -> None:
        """Run `manage.py prepare` as the owner of the tables. Raise DidNotStart if it fails."""
        failure = self._failure("prepare", ("prepare",), postgres.OWNER)
        if failure is not None:
            log = f"{self.home.logs}/prepare.log"
            raise DidNotStart(f"prepare failed: {failure} (see {log})")

    def find_agents_mistake(self) -> str | None:
        """Load the agents as workers do. Return None, or their mistake in one line."""
        return self._failure("agents", ("agents", "check", "--brief"), postgres.WORKER)

    def _failure(self, name: str, arguments: Sequence[str], role: str) -> str | None:
        """Run a command of manage.py. Return None, or its last line if it failed."""
        command = [sys.executable, "manage.py", *arguments]
        with supervisor.open_log(self.home.logs, name) as log:
            process = self._start(command, log.fileno(), self.build_environment(role))
        try:
            while process.poll() is None:
                self.pipe.pause(0.5)
        finally:
            spawn.signal_group(process, signal.SIGKILL)
            process.wait()
        if not process.returncode:
            return None
        return (
            supervisor.read_last_line(self.home.logs, name)
            or f"it ended with {spawn.describe_end(process)}"
        )

    @contextmanager
    def _log(self, name: str) -> Iterator[IO[bytes]]:
        """Open the log of a server. If the server ends, raise DidNotStart with the cause from the log."""
        try:
            with supervisor.open_log(self.home.logs, name) as log:
                yield log
        except Ended as problem:
            reason = supervisor.find_logged_cause(self.home.logs, name)
            raise DidNotStart(f"{problem}{reason} (see {self.home.logs}/{name}.log)") from problem

    def _server(
        self,
        name: str,
        listener: socket.socket,
        data: Path,
        *,
        module: str,
        secrets: dict[str, str],
    ) -> Service:
        variables = environment.build_inherited_variables({}, self.application, self.sockets)
        variables |= {spawn.MARK: self.home.id, "PYTHONUNBUFFERED": "1"} | secrets
        command = [sys.executable, "-m", module, str(listener.fileno()), str(data)]

        def start() -> subprocess.Popen[bytes]:
            with supervisor.open_log(self.home.logs, name) as log:
                return self._start(command, log.fileno(), variables, listener)

        return Service(name=name, start=start, stop_order=SERVERS, stop_timeout=1.5)

    def _process(self, process: Process, name: str, core: int | None = None) -> Service:
        listener = [self.web] if process.name == "web" else []
        variables = self.build_environment(postgres.WEB if process.decides else postgres.WORKER)
        if not process.decides:
            variables["KEYS_DIR"] = str(self.home.folder / "worker-keys")
        if process.name in CALLS_TOOLS and self.cluster and environment.has_books(self.environ):
            variables |= books.build_books_variables(self.cluster, self.home)

        def start() -> subprocess.Popen[bytes]:
            with supervisor.open_log(self.home.logs, name) as log:
                return self._start(process.command, log.fileno(), variables, *listener, core=core)

        return Service(
            name=name, start=start, stop_order=APPLICATION, stop_timeout=process.stop_timeout
        )

    def _start(
        self,
        command: Sequence[str],
        log: int,
        variables: Mapping[str, str],
        *listener: socket.socket,
        core: int | None = None,
    ) -> subprocess.Popen[bytes]:
        return spawn.start(
            command,
            account=self.application,
            environment=variables,
            folder=ROOT,
            log=log,
            pass_fds=[one.fileno() for one in listener],
            core=core,
        )


def build(
    home: DataDir,
    pipe: SignalPipe,
    servers: users.Account,
    web: socket.socket,
    environ: Mapping[str, str],
) -> Stack:
    """Choose accounts, programs and ports, and open the sockets."""
    # The path of a socket must be short, and a data folder's may be too long.
    parent = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()  # noqa: S108
    # 0700 from the start
    socket_folder = Path(tempfile.mkdtemp(prefix="signoff-", dir=parent))
    _require_short(socket_folder)
    users.chown(servers, [socket_folder])
    application = _choose_application_account(servers, home)
    ports = home.get("ports") or {}
    directory = sockets.listen_on_any_port(ports.get("directory"))
    mailbox = sockets.listen_on_any_port(ports.get("mailbox"))
    home.set(
        ports={
            "directory": sockets.read_port(directory),
            "mailbox": sockets.read_port(mailbox),
        }
    )
    programs = home.servers / "programs"
    cluster = queue = None
    if not environ.get("DATABASE_URL"):
        cluster = postgres.Cluster(
            programs=binaries.find_postgres_programs(servers, programs),
            data=home.servers / "postgres",
            socket=socket_folder,
            account=servers,
            password=home.secret("postgres_superuser"),
            mark=home.id,
        )
    if not environ.get("REDIS_URL"):
        queue = broker.Broker(
            program=binaries.find_broker_program(servers, programs),
            data=home.servers / "broker",
            socket=socket_folder,
            account=servers,
            mark=home.id,
        )
    return Stack(
        home=home,
        pipe=pipe,
        sockets=socket_folder,
        servers=servers,
        application=application,
        web=web,
        directory=directory,
        mailbox=mailbox,
        cluster=cluster,
        queue=queue,
        environ=environ,
    )


def _require_short(folder: Path) -> None:
    """Raise Refused if the folder's path is too long for a socket."""
    length = len(os.fsencode(folder / ".s.PGSQL.5432"))
    if length > MAX_SOCKET_PATH_BYTES:
        folder.rmdir()
        raise Refused(
            f"the temporary folder {folder.parent} is too deep: the path of a socket in it has {length} bytes, at"
            f" most {MAX_SOCKET_PATH_BYTES} are possible: choose another with TMPDIR=…"
        )


def _choose_application_account(servers: users.Account, home: DataDir) -> users.Account:
    """Return the servers' account if it can run the application and reach the data, else the starter.

    Python is started under it: it may lack access to the interpreter, libraries, clone or environment.
    """
    if not servers.switch:
        return servers
    places = [place for place in (ROOT / "templates", ROOT / "static") if place.exists()]
    reaches_data = users.can_access(servers, home.folder, os.X_OK)
    if not reaches_data or not all(users.can_access(servers, place) for place in places):
        return users.read_starter_account()
    try:
        process = subprocess.run(
            [sys.executable, "-c", "import config.settings, psycopg"],
            cwd=ROOT,
            env=spawn.build_plain_environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            check=False,
            timeout=60,
            **servers.build_popen_arguments(),
        )
    except OSError:
        return users.read_starter_account()
    return users.read_starter_account() if process.returncode else servers
