"""The messages of agents to the requester of a run, in the API."""

from uuid import UUID

from ninja import Router, Schema

from runtime.control.access import readable
from runtime.ports import wiring
from runtime.reads.transcript import AgentMessage, read_transcript
from runtime.web.requests import Authenticated
from runtime.web.schemas import fields_of

router = Router(tags=["runs"])


@fields_of(AgentMessage)
class AgentMessageOut(Schema):
    """A message of an agent to the requester. `text` is null while it waits for its release, which is `at`.

    `changed_by` is the person who replaced it in a fork, empty if none did.
    """


@router.get("/runs/{uuid:run}/agent-messages", response=list[AgentMessageOut])
def list_agent_messages(request: Authenticated, run: UUID) -> tuple[AgentMessage, ...]:
    """List the messages of agents to the requester. Those that wait for their release have no text."""
    wiring.access().require(request.auth, "runs:read")
    readable(run, request.auth)
    return read_transcript(run).agent_messages
