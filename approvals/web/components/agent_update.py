"""Says on the page of a request which agents of its run have a newer version than the one that asked."""

from dataclasses import dataclass
from datetime import datetime

from approvals.reads.approval_views import ApprovalView
from runtime.ports import wiring
from runtime.reads.transcript import Transcript
from runtime.reads.version_diff import VersionDifference, differences


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A newer version of an agent. `asks` says that its run stops at a version gate before it continues."""

    agent: str
    published_at: datetime
    differences: tuple[VersionDifference, ...]

    @property
    def asks(self) -> bool:
        """Whether a change needs a person."""
        return any(difference.asks for difference in self.differences)


def updates(approval: ApprovalView, transcript: Transcript) -> tuple[Update, ...]:
    """Return the newer versions of the agent that asked and of those above it, by the published definitions.

    Only a pending request of a call has any: a version gate shows its changes itself.
    """
    if approval.status != "pending" or not approval.call:
        return ()
    frames = {frame.id: frame for frame in transcript.frames()}
    used, at = dict[str, str](), frames.get(approval.frame)
    while at is not None:
        used.setdefault(at.agent, at.fingerprint)
        at = frames.get(at.parent or "")
    return tuple(
        Update(
            agent=change.agent,
            published_at=change.published_at,
            differences=differences(change.changes),
        )
        for change in wiring.catalogue().updates(used)
    )
