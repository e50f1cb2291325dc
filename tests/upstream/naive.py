"""The wrong way, as others went it: each variant puts a small honest version of it in the place of ours."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart

from agents.gateway.messages import from_provider
from agents.spec import AgentSpec
from approvals import policy
from runtime.core import pending, replay, retries
from runtime.core.codec import decode_continuation
from runtime.core.continuation import Call, CallState, Continuation, FrameState
from runtime.core.decisions import Risk
from runtime.core.digest import sha256_of
from runtime.core.effects import CloseFrame, Effect
from runtime.core.events import GateClosed, GateDecided, RetryScheduled
from runtime.core.planning import plan
from runtime.core.transitions import CALLS, FRAMES
from runtime.ports.approvals import ApprovalVoid
from runtime.store import decisions, gates, pool, runs
from runtime.store.leases import Claim
from runtime.store.pool import Connection
from tests.upstream import properties as the

Patch = pytest.MonkeyPatch


def _digest_of(*parts: str) -> Callable[..., str]:
    return lambda **action: sha256_of(
        {part: _plain(action[part]) for part in parts if part in action}
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def digest_without_arguments(patch: Patch) -> None:
    patch.setattr(
        "runtime.execution.admission.admit.action_digest",
        _digest_of("tool", "schema", "path", "effect"),
    )


def no_second_look(patch: Patch) -> None:
    patch.setattr("runtime.execution.admission.admit.Admission.recheck", lambda *_: None)


def digest_of_the_name(patch: Patch) -> None:
    patch.setattr(the, "action_digest", _digest_of("tool"))


def digest_without_the_way(patch: Patch) -> None:
    patch.setattr(the, "action_digest", _digest_of("tool", "schema", "args", "effect"))


def approval_is_not_consumed(patch: Patch) -> None:
    def keep(now: Continuation, event: GateDecided | GateClosed) -> Continuation:
        return now

    patch.setattr(pending, "drop", keep)
    for state in (CallState.ADMITTED, CallState.STARTED, CallState.RETURNED):
        patch.setitem(CALLS, (state, "GateDecided:approve"), CallState.ADMITTED)


def every_lost_call_is_run_again(patch: Patch) -> None:
    def lost(frame: str, call: Call, *, is_write: bool = False) -> RetryScheduled:
        return RetryScheduled(
            frame=frame, call=call.id, attempt=call.attempt, cause="lost", error="lost"
        )

    patch.setattr(replay, "lost", lost)


def every_error_is_tried_again(patch: Patch) -> None:
    def again(frame: str, call: Call, error: str, **rest: Any) -> Any:
        return retries.undone(frame, call, error, after=None, **rest)

    patch.setattr("runtime.execution.effects.outcomes.uncertain", again)


def nobody_looks_for_what_was_started(patch: Patch) -> None:
    patch.setattr("agents.testing.worker.recover", lambda *_: ())


def pause_is_a_result(patch: Patch) -> None:
    def hasty(now: Continuation) -> tuple[Effect, ...]:
        gated = [
            CloseFrame(frame=frame.id)
            for frame in now.frames.values()
            if frame.parent and any(one.state is CallState.GATED for one in frame.calls)
        ]
        return (*gated, *plan(now))

    patch.setattr("runtime.execution.step.plan", hasty)
    patch.setitem(FRAMES, (FrameState.ACTING, "FrameClosed:failed"), FrameState.CLOSED)


def sub_agent_begins_anew(patch: Patch) -> None:
    def forgetful(text: str) -> Continuation:
        now = decode_continuation(text)
        frames = {name: frame for name, frame in now.frames.items() if frame.parent is None}
        frames = {
            name: replace(
                frame,
                calls=tuple(
                    replace(one, state=CallState.ADMITTED, frame=None)
                    if one.state is CallState.DELEGATED
                    else one
                    for one in frame.calls
                ),
            )
            for name, frame in frames.items()
        }
        waits = tuple(one for one in now.pending if one.frame in frames)
        return replace(now, frames=frames, pending=waits)

    patch.setattr("agents.testing.worker.decode_continuation", forgetful)


def turn_begins_anew(patch: Patch) -> None:
    def forgetful(text: str) -> Continuation:
        now = decode_continuation(text)
        frames = {
            name: replace(
                frame,
                calls=tuple(
                    replace(one, state=CallState.ADMITTED)
                    if one.state is CallState.RETURNED
                    else one
                    for one in frame.calls
                ),
            )
            for name, frame in now.frames.items()
        }
        return replace(now, frames=frames)

    patch.setattr("agents.testing.worker.decode_continuation", forgetful)


def decision_is_looked_for_elsewhere(patch: Patch) -> None:
    def nowhere(*_: Any, **__: Any) -> None:
        raise ApprovalVoid

    patch.setattr("agents.testing.gatekeeper.Gatekeeper.confirm", nowhere)


def calls_by_the_providers_id(patch: Patch) -> None:
    ours = from_provider

    def keyed(agent: AgentSpec, response: ModelResponse) -> Any:
        by_id = {
            part.tool_call_id if isinstance(part, ToolCallPart) else id(part): part
            for part in response.parts
        }
        return ours(agent, replace(response, parts=list(by_id.values())))

    patch.setattr("agents.gateway.request.from_provider", keyed)


def whatever_dumps_is_json(patch: Patch) -> None:
    def text(event: Any) -> str:
        return json.dumps(asdict(event), default=str)

    patch.setattr("runtime.core.codec._text", text)
    patch.setattr("runtime.core.codec.require_json", lambda *_, **__: None)


def anybody_in_the_group_decides(patch: Patch) -> None:
    ours = policy.may_decide

    def may_decide(**asked: Any) -> Any:
        return ours(**{**asked, "requester": "", "origin": ()})

    patch.setattr(policy, "may_decide", may_decide)


def rule_that_is_shown_and_not_asked(patch: Patch) -> None:
    patch.setattr(policy, "risks_decided_by", lambda _: frozenset(Risk))


def owner_is_not_looked_at(patch: Patch) -> None:
    def let_go(
        connection: Connection,
        claim: Claim,
        changes: str,
        parameters: dict[str, object],
        condition: str = "",
    ) -> bool:
        done = connection.execute(
            f"UPDATE runtime_run SET owner = NULL, lease_until = NULL, {changes} WHERE id = %(run)s",
            {"run": claim.run, **parameters},
        )
        return done.rowcount == 1

    patch.setattr("runtime.store.leases._let_go", let_go)


def gate_is_overwritten(patch: Patch) -> None:
    patch.setattr("runtime.store.gates.DECIDE", gates.DECIDE.replace("AND state = 'open'", ""))
    patch.setattr("runtime.store.decisions._statement", decisions._statement.__wrapped__)


def decision_wakes_nobody(patch: Patch) -> None:
    wakes = runs.RING.partition("SET ")[2].partition("WHERE ")[0]
    patch.setattr("runtime.store.runs.RING", runs.RING.replace(wakes, "mailbox = mailbox "))
    patch.setattr("runtime.store.decisions._statement", decisions._statement.__wrapped__)


def sweeper_trusts_the_broker(patch: Patch) -> None:
    patch.setattr("runtime.upkeep.due_runs._take", lambda *_, **__: [])


def whoever_hears_of_it_takes_it(patch: Patch) -> None:
    def claim(connection: Connection, run: UUID, *, owner: UUID, **_: Any) -> tuple[UUID, None]:
        connection.execute(
            "UPDATE runtime_run SET epoch = epoch + 1, owner = %s WHERE id = %s", (owner, run)
        )
        return owner, None

    patch.setattr("runtime.store.loading.claim", claim)


def pool_is_inherited(patch: Patch) -> None:
    def inherited() -> Any:
        assert pool._pool is not None
        return pool._pool

    patch.setattr(pool, "_the_pool", inherited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """`bugs` are the names of the table in docs/explanation/upstream-bugs.md that it stands for."""

    apply: Callable[[Patch], None]
    bugs: tuple[str, ...]


PURE: dict[Callable[[], None], tuple[Variant, ...]] = {
    the.only_what_was_shown_is_done: (
        Variant(apply=digest_without_arguments, bugs=("pydantic-ai#6968",)),
        Variant(apply=no_second_look, bugs=("agent-framework#7345",)),
    ),
    the.an_approval_is_for_the_tool_as_it_was_shown: (
        Variant(apply=digest_of_the_name, bugs=("MCPoison",)),
    ),
    the.an_approval_is_for_the_agent_that_asked: (Variant(apply=digest_without_the_way, bugs=()),),
    the.a_decision_counts_once: (
        Variant(apply=approval_is_not_consumed, bugs=("langgraph#6663",)),
    ),
    the.a_write_whose_worker_died_is_not_repeated: (
        Variant(apply=every_lost_call_is_run_again, bugs=("celery#5935", "pretix#2058")),
    ),
    the.a_write_that_times_out_is_not_repeated: (
        Variant(apply=every_error_is_tried_again, bugs=()),
    ),
    the.an_approval_outlives_the_worker_that_took_it_up: (
        Variant(apply=nobody_looks_for_what_was_started, bugs=("agent-framework#7458",)),
    ),
    the.a_read_whose_worker_died_is_made_again: (
        Variant(apply=nobody_looks_for_what_was_started, bugs=("river#1258",)),
    ),
    the.a_pause_is_no_result_for_the_parent: (Variant(apply=pause_is_a_result, bugs=()),),
    the.a_resumed_sub_agent_goes_on_where_it_was: (
        Variant(apply=sub_agent_begins_anew, bugs=("openai-agents#2487", "langgraph#6792")),
    ),
    the.what_was_done_in_a_turn_is_not_done_again_when_it_resumes: (
        Variant(apply=turn_begins_anew, bugs=("langgraph#7780", "langgraph#7361")),
    ),
    the.an_approval_is_honoured_after_a_wait: (
        Variant(apply=decision_is_looked_for_elsewhere, bugs=("openai-agents#4244",)),
    ),
    the.calls_of_one_id_are_two_calls: (Variant(apply=calls_by_the_providers_id, bugs=()),),
    the.half_a_surrogate_pair_is_refused: (
        Variant(apply=whatever_dumps_is_json, bugs=("CVE-2025-64439",)),
    ),
    the.nobody_decides_on_their_own_run: (
        Variant(apply=anybody_in_the_group_decides, bugs=("gitlab#11291", "gitlab#34375")),
    ),
    the.only_who_may_decide_a_risk_does: (
        Variant(apply=rule_that_is_shown_and_not_asked, bugs=("gitea#25858", "gitlab#461248")),
    ),
}
