"""The services of docker-compose.yml as real processes: their commands and environment, with other hosts and paths."""

import compileall
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from config.env.environment import ROOT
from config.local.processes import users
from config.local.servers import binaries
from tests.support import commands, servers
from tests.support.deployment import compose

TOKEN = "the directory's token, for tests only"
SECRETS = re.compile(r"```sh\n(mkdir -m 700 secrets\n.*?)```", re.DOTALL)


class Services:
    """Everything of one deployment in one folder: its image, volumes, secrets and stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "image"
        self.image.mkdir(parents=True)
        compose.build(self.image)
        compileall.compile_dir(self.image, quiet=2)  # as the Dockerfile does
        self.shims = folder / "bin"
        self._packages = compose.without(compose.missing_packages(), folder / "packages")
        self.port = servers.free_port()
        self.broker_port = servers.free_port()
        self.world = {"SCIM_URL": "", "EMAIL_URL": ""}
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._make_secrets()
        self._make_shims()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def services(self) -> dict[str, Any]:
        times = {"SIGNOFF_LEASE_SECONDS": "3", "SIGNOFF_UNDO_SECONDS": "0"}
        chosen = {"PUBLIC_URL": self.url, **times, **self.world}
        return dict(compose.resolved(*chosen.items())["services"])

    def keys(self, name: str) -> Path:
        return Path(self.environment(name)["KEYS_DIR"])

    def secret(self, name: str) -> str:
        return (self.folder / "secrets" / name).read_text().strip()

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables of a service from the image and the file, with only the PATH of the test."""
        service = self.services[name]
        image = compose.environment()
        given = {**image, **service.get("environment", {})}
        given |= {"PATH": f"{self.shims}:{compose.BIN}:/usr/bin:/bin"}
        moved = {variable: self._moved(value, service) for variable, value in given.items()}
        return {**moved, **self._packages}

    def command(self, name: str, parts: Sequence[str]) -> list[str]:
        """A service's command or health check, in the form in which it can be started here."""
        service = self.services[name]
        words = [self._moved(compose.unescaped(part), service) for part in parts]
        if words[0] == "CMD-SHELL":
            return ["sh", "-c", *words[1:]]
        return words[1:] if words[0] == "CMD" else words

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """A service's own command for as long as the block lasts; it must end well, and in time."""
        log = self._logs / f"{name}.log"
        service = self.services[name]
        command, environment = self.command(name, service["command"]), self.environment(name)
        process = commands.start(command, log, env=environment, folder=self.image)
        try:
            yield
        finally:
            process.terminate()
            process.wait(float(service.get("stop_grace_period", "10s").removesuffix("s")))
            assert process.returncode in (0, -15), log.read_text()[-2000:]

    def run(self, name: str, *command: str, told: str = "") -> str:
        """Run a command instead of the service's own, like `docker compose run`, and return its output."""
        words = self.command(name, command or self.services[name]["command"])
        done = commands.run(*words, env=self.environment(name), told=told, folder=self.image)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def healthy(self, name: str) -> bool:
        check = self.command(name, self.services[name]["healthcheck"]["test"])
        if name == "web":
            check += ["--at", f"127.0.0.1:{self.port}"]  # the check asks the port of the image
        done = commands.run(*check, env=self.environment(name), folder=self.image)
        return done.returncode == 0

    @contextmanager
    def database(self) -> Iterator[None]:
        """An embedded Postgres with the password of the secret."""
        place = servers.own(self.folder / "servers")
        password = self.secret("postgres_password")
        cluster = servers.cluster(self.folder, place, password, superuser="signoff")
        (self.shims / "pg_isready").symlink_to(cluster.programs / "pg_isready")
        with servers.postgres_of(cluster, self._logs):
            yield

    def postgres(self, *command: str, told: bytes = b"") -> bytes:
        """Run a Postgres program beside the server, like `docker compose exec`, and return its output."""
        program = servers.cluster(self.folder, self.folder).programs / command[0]
        known = {
            "PGHOST": str(self.folder / "servers"),
            "PGPASSWORD": self.secret("postgres_password"),
        }
        return subprocess.run(
            [program, *command[1:]], env=known, input=told, capture_output=True, check=True
        ).stdout

    @contextmanager
    def outside(self) -> Iterator[None]:
        """A directory and a mail server, whose addresses are settings of the deployment."""
        with servers.outside(self.folder, TOKEN) as self.world:
            yield

    @property
    def mail(self) -> Path:
        return self.folder / "mail"

    def _moved(self, text: str, service: Mapping[str, Any]) -> str:
        """A text in which hosts and folders of the containers are those of this deployment."""
        volumes = {one["target"]: one["source"] for one in service.get("volumes", [])}
        moves = {path: self.folder / "volumes" / source for path, source in volumes.items()}
        for place in moves.values():
            place.mkdir(parents=True, exist_ok=True)
        moves |= {"/run/secrets": self.folder / "secrets", "/srv/signoff": self.image}
        for path, place in moves.items():
            text = text.replace(path, str(place))
        servers = self.folder / "servers"
        return (
            text.replace("@postgres/", f"@{quote(str(servers), safe='')}/")
            .replace("--host=127.0.0.1", f"--host={servers}")
            .replace("//redis:6379", f"//127.0.0.1:{self.broker_port}")
            .replace("0.0.0.0:8000", f"127.0.0.1:{self.port}")
        )

    def _make_secrets(self) -> None:
        """Write the secrets by the commands of docs/how-to/install.md, and one by hand."""
        found = SECRETS.search((ROOT / "docs/how-to/install.md").read_text())
        assert found, "docs/how-to/install.md no longer says how secrets are made"
        subprocess.run(["sh", "-e", "-c", found[1]], cwd=self.folder, check=True)
        token = self.folder / "secrets" / "scim_token"
        token.chmod(0o600)
        token.write_text(f"{TOKEN}\n")

    def _make_shims(self) -> None:
        """Redis' programs under the names that the file uses, on a port of ours."""
        self.shims.mkdir()
        self.shims.chmod(0o755)
        server = shutil.copy(
            binaries.find_broker_program(users.read_starter_account(), self.folder),
            self.shims / "valkey",
        )
        code = (
            "import os, redis; print('PONG' if redis.Redis(port="
            f"{self.broker_port}, password=os.environ['REDISCLI_AUTH']).ping() else '')"
        )
        for name, line in (
            ("redis-server", f'exec {server} --port {self.broker_port} "$@"'),
            ("redis-cli", f'exec {sys.executable} -c "{code}"'),
        ):
            shim = self.shims / name
            shim.write_text(f"#!/bin/sh\n{line}\n")
            shim.chmod(0o755)
