"""Says which requests a person is mailed about now, and whether the mail can wait for more of them. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from runtime.core.values.enums import GateKind, Risk

# How long a request waits in the inbox before its people are mailed. A call in doubt counts as high risk.
DELAYS: Mapping[Risk, timedelta] = {
    Risk.HIGH: timedelta(0),
    Risk.MEDIUM: timedelta(minutes=5),
    Risk.LOW: timedelta(hours=1),
}
PAUSE = timedelta(minutes=10)  # between two mails to a person, unless a request is urgent


def is_urgent(kind: str, risk: str) -> bool:
    """Tell whether the people of such a request are mailed at once."""
    return kind == GateKind.IN_DOUBT or risk == Risk.HIGH


def may_send(urgent: bool, last: datetime | None, at: datetime) -> bool:
    """Tell whether a person who was last mailed at `last` is mailed now."""
    return urgent or last is None or at - last >= PAUSE
