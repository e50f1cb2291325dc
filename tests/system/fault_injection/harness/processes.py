"""The tests' side of the zygote: forks workers and learns of their deaths."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from config.env.environment import ROOT


class Worker:
    """A process that the zygote forked. `died` is set when it is gone, `by` then the signal it died of."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.died = threading.Event()
        self.by = 0

    def wait_until_ready(self) -> None:
        """Poll until Celery logs that it takes tasks."""
        deadline = time.monotonic() + 30
        while "ready." not in self.log.read_text():
            assert not self.died.is_set(), self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9, returning when it is gone."""
        if not self.died.is_set():
            os.kill(self.pid, signal.SIGKILL)
        assert self.died.wait(60)


class Zygote:
    """Start with the environment that all children share; stop when every child is gone."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "zygote.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.fault_injection.harness.zygote"],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._lock = threading.Lock()
        self._answers: queue.Queue[int] = queue.Queue()
        self._workers: dict[int, Worker] = {}
        self._count = 0
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._listen, args=[self._process.stdout])
        self._reader.start()
        self._answers.get(timeout=60)

    def worker(self, *, broker: str | None = None, **env: str) -> Worker:
        """A real Celery worker."""
        return self._start({"start": "worker", "broker": broker, "env": env})

    def isolated(self) -> Worker:
        """The worker that runs go through which lost theirs in the middle of a call."""
        return self._start({"start": "isolated", "env": {}})

    def sweeper(self) -> Worker:
        """A real sweeper."""
        return self._start({"start": "sweeper", "env": {}})

    def loop(self, **env: str) -> Worker:
        """A process that advances due runs without a broker."""
        return self._start({"start": "loop", "env": env})

    def stop_children(self) -> None:
        """kill -9 of everything that was forked."""
        for worker in list(self._workers.values()):
            worker.kill()

    def stop(self) -> None:
        self.stop_children()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(60)
        self._process.stdout.close()  # type: ignore[union-attr]
        self._log.close()

    def _start(self, order: dict[str, object]) -> Worker:
        with self._lock:
            self._count += 1
            log = self._folder / f"worker-{self._count}.log"
            log.touch()
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({**order, "log": str(log)}).encode() + b"\n")
            self._process.stdin.flush()
            pid = self._answers.get(timeout=30)
            worker = self._workers[pid]
            worker.log = log
            return worker

    def _listen(self, lines: IO[bytes]) -> None:
        for line in lines:
            said = json.loads(line)
            if "ended" in said:
                worker = self._workers[said["ended"]]
                worker.by = said["by"]
                worker.died.set()
                continue
            if "pid" in said:
                self._workers[said["pid"]] = Worker(said["pid"], Path())
            self._answers.put(said.get("pid", 0))
