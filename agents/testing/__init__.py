"""The test kit for authors: a scripted model, and a run driven in memory, without Postgres, broker or processes.

::

    def test_a_refund_waits_for_a_person() -> None:
        run = drive(refunds, {"order": "A-1", "euros": 40})
        assert run.gate.sentence == "Pay 40 euros back for order A-1"
        assert run.approve().output == "The money is on its way."
"""

# The rest of the kit loads Django's models, and those ask for settings.
from agents.testing import setup

setup.configure()

from agents.sdk.scripts import Reply, Result, Turn, answer, call, say, script, together  # noqa: E402
from agents.testing.drive import Flow, drive, replies  # noqa: E402
from agents.testing.worker import ToolCall  # noqa: E402

__all__ = [
    "Flow",
    "Reply",
    "Result",
    "ToolCall",
    "Turn",
    "answer",
    "call",
    "drive",
    "replies",
    "say",
    "script",
    "together",
]
