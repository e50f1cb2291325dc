"""The product without one of its guarantees, to show what that one costs. For the bench alone.

`python -m tests.bench.sides.without` runs such a worker; the bench itself enters `left_out` for as long as it stands
where the web process would.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

VARIABLE = "SIGNOFF_BENCH_WITHOUT"

Replaced = tuple[Any, str, Any]  # an object, the name of its attribute, and what takes its place


def _macs() -> list[Replaced]:
    """No HMAC is made, none is checked: of entries, continuations, requests and audit rows."""
    from runtime.keyring import macs

    def seal(purpose: str, *parts: str, short: bool = False) -> macs.Seal:
        mac = os.urandom(32).hex()  # the journal's must differ
        return macs.Seal(mac=mac[: macs.SHORT] if short else mac, key_id="none")

    def verified(*_: Any, **__: Any) -> bool:
        return True

    return [
        (macs, "seal", seal),
        (macs, "verify", verified),
        (macs, "verifier", lambda *_: verified),
    ]


def _signature() -> list[Replaced]:
    """A decision is not signed, and no signature is checked."""
    from runtime.keyring import signatures

    def sign(purpose: str, text: str) -> signatures.Signature:
        return signatures.Signature(hex="00" * 64, key_id="none")

    return [(signatures, "sign", sign), (signatures, "verify_signature", lambda *_: True)]


def _audit() -> list[Replaced]:
    """No row of the audit chain is made or written."""
    from approvals.models import AuditEntry
    from approvals.signed import audit
    from runtime.ports.approvals import StatementPart

    none = StatementPart(name="audited", sql="SELECT", parameters={}, overtaken="audit_order")
    row = AuditEntry(seq=0, hash="")
    return [(audit, "following", lambda *_, **__: row), (audit, "appended", lambda _: none)]


def _lease() -> list[Replaced]:
    """One lease lasts for the whole round, and none is renewed."""
    from django.conf import settings

    from runtime.execution.heartbeat import Heartbeat
    from runtime.store import pool

    def start(self: Heartbeat) -> None:
        with pool.open_own() as connection:
            self._beat(connection)

    return [(settings, "SIGNOFF_LEASE_SECONDS", 86_400.0), (Heartbeat, "start", start)]


def _rights() -> list[Replaced]:
    """A worker starts an approved call without reading the request again."""
    from approvals.port.adapter import ApprovalService

    return [(ApprovalService, "verify_approval", lambda *_, **__: None)]


GUARANTEES: dict[str, Callable[[], list[Replaced]]] = {
    "MACs": _macs,
    "signed decision": _signature,
    "audit": _audit,
    "lease": _lease,
    "second look at the approval": _rights,
}


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Leave it out in this process for as long as the block lasts; an empty name leaves nothing out."""
    with ExitStack() as stack:
        for owner, attribute, replacement in GUARANTEES[name]() if name else ():
            stack.enter_context(patch.object(owner, attribute, replacement))
        yield


if __name__ == "__main__":
    import django

    from config import worker

    django.setup()
    with left_out(os.environ[VARIABLE]):
        sys.exit(worker.main(sys.argv[1:]))
