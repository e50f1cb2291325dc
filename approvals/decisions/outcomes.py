"""Records the outcomes of decided calls, so that lists find them. A step of the engine includes the statement.

A row only repeats what the journal says. No check reads it: a changed row shows a call in the wrong list, and the
page of its request still shows what the journal has.
"""

import json
from collections.abc import Sequence

from runtime.ports.approvals import EndedCall, StatementPart

# The last decision on a call, and earlier ones that left it in doubt, get the same outcome. An undecided request has
# no place in the history.
_RECORD = """
    INSERT INTO approvals_approvaloutcome (approval_id, run_id, frame, call, outcome, position, decided_at)
    SELECT r.id, r.run_id, e.frame, e.call, e.outcome, %(ended_at)s, r.decided_at
    FROM run, json_to_recordset(%(ended)s::json) AS e (gate uuid, frame text, call text, outcome text),
        LATERAL (
            SELECT id, run_id, decided_at FROM approvals_approval WHERE gate = e.gate AND run_id = run.id
            UNION
            SELECT d.id, d.run_id, d.decided_at
            FROM approvals_approvaloutcome o JOIN approvals_approval d ON d.id = o.approval_id
            WHERE o.run_id = run.id AND o.outcome = 'in_doubt' AND o.frame = e.frame AND o.call = e.call
        ) AS r
    WHERE r.decided_at IS NOT NULL
    ON CONFLICT (approval_id) DO UPDATE SET outcome = EXCLUDED.outcome, position = EXCLUDED.position
"""


def recorded(ended: Sequence[EndedCall], *, position: int) -> StatementPart:
    """Return the part of an engine statement that records how these calls ended, at the entry `position`."""
    rows = [
        {"gate": str(one.gate), "frame": one.frame, "call": one.call, "outcome": one.outcome}
        for one in ended
    ]
    return StatementPart(
        name="ended",
        sql=_RECORD,
        parameters={"ended": json.dumps(rows), "ended_at": position},
    )
