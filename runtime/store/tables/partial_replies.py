"""Parts of replies that models are giving, one for each frame, so that not all is lost with the worker.

A worker overwrites the row every few seconds, without waiting for the disk. The step that journals the reply, or that
it was lost, deletes it. The MAC binds a row to its run, frame, turn and attempt.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.ports.effects import PartialReply
from runtime.store.pool import Connection

LABEL = "partial reply"  # tells a row from a journal entry under the same key

# The part of the step statement that deletes the rows of the frames whose replies it journals.
DROP = """
    DELETE FROM runtime_storedpartialreply WHERE run_id = (SELECT id FROM run) AND frame = ANY(%(r_frames)s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialReplyRow(PartialReply):
    """The part of the reply of a frame that was received by `at`."""

    frame: str
    turn: int
    attempt: int
    at: datetime


def write(
    connection: Connection, run: UUID, reply: PartialReplyRow, *, owner: UUID, epoch: int
) -> bool:
    """Write the row of a frame while this claim has the run; return whether it has. The caller is in a transaction."""
    body = json.dumps({**asdict(reply), "at": reply.at.isoformat()})
    seal = signatures.seal(purposes.JOURNAL, LABEL, str(run), reply.frame, body)
    # A part that Postgres loses in a crash costs nothing but these words: the model is asked again anyway.
    connection.execute("SET LOCAL synchronous_commit = off")
    cursor = connection.execute(
        """
        INSERT INTO runtime_storedpartialreply (run_id, frame, body, mac, key_id)
        SELECT id, %s, %s, %s, %s FROM runtime_run WHERE id = %s AND owner = %s AND epoch = %s FOR SHARE
        ON CONFLICT (run_id, frame) DO UPDATE
        SET body = EXCLUDED.body, mac = EXCLUDED.mac, key_id = EXCLUDED.key_id
        """,
        (reply.frame, body, seal.mac, seal.key_id, run, owner, epoch),
    )
    return cursor.rowcount == 1


def read_for_run(connection: Connection, run: UUID) -> tuple[dict[str, PartialReplyRow], list[str]]:
    """Return the parts of a run by frame, and the frames whose row no worker wrote. Raise KeyMissing."""
    rows = connection.execute(
        "SELECT frame, body, mac, key_id FROM runtime_storedpartialreply WHERE run_id = %s", (run,)
    )
    genuine, forged = {}, []
    for frame, body, mac, key_id in rows.fetchall():
        if signatures.verify(
            purposes.JOURNAL, Seal(mac=mac, key_id=key_id), LABEL, str(run), frame, body
        ):
            document = json.loads(body)
            document["at"] = datetime.fromisoformat(document["at"])
            genuine[frame] = PartialReplyRow(**document)
        else:
            forged.append(frame)
    return genuine, forged


def build_drop_parameters(frames: Collection[str]) -> dict[str, object]:
    """Return the parameters of DROP."""
    return {"r_frames": list(frames)}
