"""The work of `signoff ask`: wait for a decision, and run a command once after an approval."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any

from agentapprovalprotocol import AAPError, Allow, Client, Gate, ProtocolError, Request

from signoff_client.gate import PATH, UNTIL_THE_DEADLINE, connection, new_call, require

COMMAND = "command"  # the argument that shows the reviewer what will run
FORWARDED = (signal.SIGTERM, signal.SIGHUP)


class _Asking(Client):
    """Remembers its request, so that it can be cancelled."""

    request: Request | None = None
    tell: Callable[[str], None]

    def create(self, submission: Mapping[str, Any], key: str) -> Request:
        """Make the request, or find the one of this key."""
        self.request = super().create(submission, key)
        if self.request.status == "pending":
            page = f"{self.base_url.removesuffix(PATH)}/runs/{self.request.id}/"
            self.tell(
                f"waits for a person until {self.request.deadline_at:%Y-%m-%d %H:%M} UTC: {page}"
            )
        return self.request


def ask(
    url: str | None,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    claims: Mapping[str, Any],
    reasoning: str | None,
    timeout: str,
    key: str | None,
    command: Sequence[str],
    tell: Callable[[str], None],
) -> tuple[str, int]:
    """Wait until a person decides. Run the command if it was approved; return the request's id and the exit status.

    Raise NotApproved if the command must not run. A signal while it waits cancels the request.
    """
    call = new_call(tool, arguments, claims, key=key, reasoning=reasoning)
    with closing(_Asking(*connection(url))) as client, _ended_by_sigterm():
        client.tell = tell
        try:
            verdict = Gate(client, timeout=timeout, wait_limit=UNTIL_THE_DEADLINE).check(call)
        except KeyboardInterrupt:
            if client.request is not None:
                with suppress(AAPError, ProtocolError):
                    client.cancel(client.request.id)
            raise
        allowed = require(verdict)
        return allowed.request_id, _run(command, allowed) if command else 0


def read_arguments(words: Sequence[str], command: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of `NAME=TEXT` and `NAME:=JSON`, with the command among them."""
    arguments: dict[str, Any] = {COMMAND: list(command)} if command else {}
    for word in words:
        name, separator, text = word.partition("=")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        if not separator or not name or name in arguments:
            raise ValueError(f"--arg needs NAME=TEXT or NAME:=JSON, with each name once: {word}")
        try:
            arguments[name] = json.loads(text) if is_json else text
        except ValueError:
            raise ValueError(f"--arg {name} is not JSON") from None
    return arguments


def _run(command: Sequence[str], allowed: Allow) -> int:
    """Run the command and report its outcome. Signals go on to it, so that the outcome is its own."""
    try:
        process = subprocess.Popen(command)
    except OSError as exc:
        allowed.report("failed", f"not started: {exc.strerror}")
        raise
    with _forwarded_to(process):
        status = process.wait()
    allowed.report("succeeded" if status == 0 else "failed", f"exit status {status}")
    return status if status >= 0 else 128 - status


@contextmanager
def _forwarded_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    before[signal.SIGINT] = signal.signal(
        signal.SIGINT, lambda *_: None
    )  # a terminal sends it to both
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
