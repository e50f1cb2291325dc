"""Votes: signed approvals of a request that needs several people, as stored, with their verification.

A vote is signed like a decision, over the request digest. The statement that decides names the votes it counts, so a
worker that verifies it verifies each of them and counts again. A withdrawn vote cannot be put back: its statement
says how often the person had withdrawn before, and the audit, which only grows, says how often they have.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from approvals.models import Approval, Vote
from approvals.rules import tally
from approvals.rules.policy import Demands, decode_demands
from approvals.signed import rows
from approvals.signed.statements import Statement
from runtime.core.values.enums import Verdict
from runtime.core.values.json_values import hash_value
from runtime.core.values.verdicts import STARTS_CALL_UNCHANGED
from runtime.keyring import signatures
from runtime.keyring.signatures import Verifies
from runtime.ports.approvals import NotConfirmed

# The verdicts that let a call start: only these need votes. One person denies, answers or gives up.
VOTED, WITHDRAWN, VOID = "voted", "vote withdrawn", "vote void"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A vote, verified. `digest` is that of its statement, `rights` the person's rights now, for `from_rights`."""

    person: str
    stage: int
    reason: str
    at: datetime
    digest: str
    rights: str | None = None
    absent: str | None = None  # the person in whose place they voted
    authenticated: Mapping[str, str] | None = None  # as in `Actor`, if the policy asks for it

    @property
    def owner(self) -> str:
        """The person whose vote it is: the absent one's where a deputy voted."""
        return self.absent or self.person


def build_votes_sql(rights: str = "NULL") -> str:
    """Return the SQL expression of a request's votes as JSON text, for `read`; `r` is the request.

    `rights` is the expression of the rights of `v.person`.
    """
    return f"""
        CASE WHEN r.rule IS NULL THEN NULL ELSE (
            SELECT json_agg(json_build_array(v.person, v.for_person, v.stage, v.reason, v.at, v.verdict, v.signature,
                v.key_id,
                (SELECT count(*) FROM approvals_auditentry a WHERE a.run_id = r.run_id
                    AND a.subject = 'vote ' || r.id || ' ' || v.person AND a.act <> 'voted'),
                {rights}, v.authenticated) ORDER BY v.at, v.person)::text
            FROM approvals_vote v WHERE v.approval_id = r.id) END
    """


def name_vote_subject(approval: Approval, person: str) -> str:
    """Return the subject of audit rows about a person's vote."""
    return f"vote {approval.id} {person}"


def make(
    approval: Approval,
    *,
    person: str,
    stage: int,
    verdict: Verdict,
    reason: str,
    at: datetime,
    withdrawn: int,
    absent: str | None = None,
    authenticated: Mapping[str, str] | None = None,
) -> Vote:
    """Sign a vote, without writing it. Raises ImproperlyConfigured without the private key."""
    vote = Vote(
        approval=approval,
        person=person,
        for_person=absent,
        verdict=verdict,
        stage=stage,
        reason=reason,
        at=at,
        authenticated=authenticated,
    )
    vote.withdrawn = withdrawn
    rows.sign(vote)
    return vote


def compute_digest(vote: Vote) -> str:
    """Return the digest by which the deciding statement names a vote."""
    return hash_value(rows.build_signed_text(vote))


def read(
    approval: Approval, stored_votes: str | None, verifies: Verifies = signatures.verify_signature
) -> tuple[Cast, ...]:
    """Verify what `build_votes_sql` found. Raises NotConfirmed at the first vote that does not verify, KeyMissing."""
    return tuple(_read(approval, verifies, *values) for values in json.loads(stored_votes or "[]"))


def read_demands(approval: Approval) -> Demands | None:
    """Return what the policy demands of the request; None for the default policy. Raises NotConfirmed."""
    try:
        return decode_demands(approval.rule)
    except (ValueError, KeyError, TypeError) as exc:
        raise NotConfirmed("the stored rule of the request cannot be read") from exc


def check_counted(
    approval: Approval, statement: Statement, votes: Sequence[Cast]
) -> tuple[Cast, ...]:
    """Return the votes that the deciding statement names. Raises NotConfirmed unless they suffice.

    Without this, one signed statement would be enough under every policy.
    """
    needed = read_demands(approval)
    if needed is not None and not needed.accept(statement.authenticated, statement.at):
        raise NotConfirmed(f"{statement.by} gave no fresh second factor")
    if needed is None or statement.verdict not in STARTS_CALL_UNCHANGED:
        return ()
    named_votes = [vote for vote in votes if vote.digest in statement.votes]
    counted = {vote.person: vote.stage for vote in named_votes if vote.at <= statement.at}
    owners = {vote.owner for vote in named_votes}
    absent = {vote.absent for vote in named_votes}
    if absent & {vote.person for vote in named_votes} or len(owners) < len(named_votes):
        raise NotConfirmed("a person counts twice, once by a deputy")
    for vote in named_votes:
        if not needed.accept(vote.authenticated, vote.at):
            raise NotConfirmed(f"{vote.person}, who voted, gave no fresh second factor")
    barred = {approval.requester, *approval.origin} & (set(counted) | owners)
    if barred:
        raise NotConfirmed(f"{', '.join(sorted(barred))}, who voted, is in the run's origin")
    if statement.by not in counted or tally.find_current_stage(needed.stages, counted) is not None:
        missing = tally.count_missing(needed.stages, counted)
        raise NotConfirmed(
            f"{len(counted)} of {needed.quorum} approvals are signed, and {missing} are missing"
        )
    return tuple(named_votes)


def _read(
    approval: Approval,
    verifies: Verifies,
    person: str,
    absent: str | None,
    stage: int,
    reason: str,
    at: str,
    verdict: str,
    signature: str,
    key_id: str,
    withdrawn: int,
    rights: str | None,
    authenticated: Mapping[str, str] | None,
) -> Cast:
    vote = Vote(
        approval=approval,
        person=person,
        for_person=absent,
        verdict=verdict,
        stage=stage,
        reason=reason,
        at=datetime.fromisoformat(at),
        signature=signature,
        key_id=key_id,
        authenticated=authenticated,
    )
    vote.withdrawn = withdrawn
    text = rows.build_signed_text(vote)
    if not rows.verify(vote, text, verifies):
        raise NotConfirmed(f"the vote of {person} is not the one that they signed")
    return Cast(
        person=person,
        stage=stage,
        reason=reason,
        at=vote.at,
        digest=hash_value(text),
        rights=rights,
        absent=absent,
        authenticated=authenticated,
    )
