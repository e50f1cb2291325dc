"""Applies the events of one frame: messages, results, plans, summaries, other versions of its agent, failed replies.

A message of a person is kept until the root's model receives it, at the start of a turn. A model gets its frame's
messages, then the undelivered ones. A reply records how many of these its request had, so a message that arrives
during the call waits for the next turn. If a message arrived while the model was answering, the model is called again.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from runtime.core.run.continuation import (
    MAX_SAME_REPLIES,
    Call,
    Continuation,
    CutReply,
    Frame,
    FrameState,
    Outage,
    PlanItem,
    Undelivered,
    add_people,
    add_reviewer,
    replace,
)
from runtime.core.run.events import (
    AgentChanged,
    Compacted,
    MemorySummarised,
    MessageReceived,
    ModelReplied,
    Remembered,
    RetryScheduled,
)
from runtime.core.run.transitions import FRAMES, RUNS, look_up_next_state, require_attempt
from runtime.core.values.budgets import add_usage
from runtime.core.values.enums import SETTLED, CallState, EffectClass
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.ids import ROOT
from runtime.core.values.limits import KEPT_INLINE, MAX_PLAN_ITEM, MAX_PLAN_ITEMS

MESSAGE = "message"  # role of a person's message
SUMMARY = "summary"  # role of the message that replaces the earlier ones
Plan = tuple[PlanItem, ...]
_PLAN: TypeAdapter[Plan] = TypeAdapter(Plan)
_PLAN_FIELD = "plan"


def move_frame(frame: Frame, trigger: str) -> Frame:
    """Return the frame in its next state. Raises IllegalTransition."""
    return replace(frame, state=look_up_next_state(FRAMES, frame.state, trigger, subject=frame.id))


# Messages


def receive_message(now: Continuation, event: MessageReceived) -> Continuation:
    """Keep the message. A root that has already answered calls its model again. Raises IllegalTransition."""
    phase = look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
    unheard = (*now.unheard, Undelivered(by=event.by, text=event.text))
    now = replace(now, phase=phase, unheard=unheard)
    now = add_reviewer(now, event.by) if event.reviewer else add_people(now, event.by)
    root = now.root
    if root is None or root.state is not FrameState.ANSWERED:
        return now
    state = look_up_next_state(FRAMES, root.state, event.type, subject=root.id)
    return now.with_frame(replace(root, state=state, outcome=None))


def list_undelivered(now: Continuation, frame: str) -> tuple[dict[str, Any], ...]:
    """Return the messages to append to the frame's own in the next model call."""
    if not now.unheard or frame != ROOT:
        return ()
    return tuple(make_person_message(message.by, message.text) for message in now.unheard)


def deliver_messages(now: Continuation, frame: Frame, count: int) -> tuple[Continuation, Frame]:
    """Move the first `count` undelivered messages to the frame. Raises IllegalTransition if there are fewer."""
    there = list_undelivered(now, frame.id)
    if not 0 <= count <= len(there):
        raise IllegalTransition("Frame", f"{len(there)} unheard", f"heard {count}", frame.id)
    if not count:
        return now, frame
    frame = replace(frame, messages=frame.messages + there[:count])
    return replace(now, unheard=now.unheard[count:]), frame


def make_person_message(by: str, text: str) -> dict[str, Any]:
    """Return a person's message as the model receives it."""
    return {"role": MESSAGE, "by": by, "content": text}


def make_input_message(content: Any) -> dict[str, Any]:
    """Return the first message of a frame."""
    return {"role": "input", "content": content}


def make_reply_message(event: ModelReplied, calls: Sequence[Call]) -> dict[str, Any]:
    """Return the message of a reply with these calls."""
    message = {
        "role": "model",
        "reply": event.reply,
        "text": event.text,
        "calls": [call.id for call in calls],
    }
    if event.output_kept:
        message["output"] = event.output
    if event.given_by:
        message["given_by"] = event.given_by
    return message


def make_results_message(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the message with the results of a turn, in the order of its proposals."""
    return {"role": "results", "results": [make_call_result(call) for call in calls]}


def make_call_result(call: Call) -> dict[str, Any]:
    """Return the result of a settled call as the model receives it."""
    result: dict[str, Any] = {
        "call": call.id,
        "tool": call.tool,
        "outcome": str(call.state),
        "content": call.result,
    }
    if call.stored is not None:
        result["stored"] = {"digest": call.stored.digest, "size": call.stored.size}
    if call.verdict is not None:
        result["verdict"] = str(call.verdict)
    if call.answered:
        result["answered"] = True
    if call.edited is not None and not call.edited.is_of_reply(call.args):
        result |= {"edited_by": call.edited.by, "args": call.args}
    if call.changed_by is not None:
        result["changed_by"] = call.changed_by
    return result if call.reported_by is None else {**result, "reported_by": call.reported_by}


# Model calls without a reply


def schedule_model(now: Continuation, event: RetryScheduled) -> Continuation:
    """Return the continuation after a model call without a reply, which is tried again."""
    frame = move_frame(now.frame(event.frame), event.type)
    require_attempt(frame, event.attempt, frame.attempt)
    if event.instead:
        frame = replace(frame, model=event.instead, failures=0)
    elif event.asks_at is not None:  # all models were called: the next round begins with the first
        frame = replace(frame, model="", failures=0)
    elif event.cause == "error":
        frame = replace(frame, failures=frame.failures + 1)
    since = event.since or event.until
    if event.tokens and since is not None:
        cut = CutReply(text=event.partial, tokens=event.tokens, since=since, cause=event.cause)
        frame = replace(frame, cut=cut)
    outage = frame.outage
    if event.since is not None:
        rounds, tries = (outage.rounds, outage.tries) if outage else (0, 0)
        outage = Outage(
            since=event.since,
            error=event.error,
            rounds=rounds + (event.asks_at is not None),
            asks_at=event.asks_at,
            limited=event.model if event.limited and not event.instead else "",
            tries=tries + event.limited,
        )
    now = now.with_frame(replace(frame, until=event.until, ticket=event.ticket, outage=outage))
    return replace(now, usage=add_usage(now.usage, event.usage)) if event.usage else now


# Versions of its agent


def change_agent(now: Continuation, event: AgentChanged) -> Continuation:
    """Return the continuation after the change.

    Raises IllegalTransition if the frame does not have version `before`.
    """
    frame = now.frame(event.frame)
    look_up_next_state(FRAMES, frame.state, event.type, subject=frame.id)
    if event.before != frame.fingerprint:
        raise IllegalTransition("Frame", f"of version {frame.fingerprint}", event.type, frame.id)
    changed = replace(
        frame,
        fingerprint=event.fingerprint,
        prompt=event.prompt,
        instructions=event.instructions,
        pinned=event.pinned,
        calls=tuple(make_stricter(call, event.writes) for call in frame.calls),
    )
    now = now.with_frame(changed)
    return replace(now, agents={**now.agents, frame.agent: event.fingerprint})


def make_stricter(call: Call, writes: tuple[str, ...]) -> Call:
    """Return a call that counts as a write from now on, if its tool is among `writes` and it has no result yet."""
    if call.terms is None or call.state in SETTLED or call.tool not in writes:
        return call
    terms = dataclasses.replace(call.terms, effect=EffectClass.WRITE)
    return replace(call, terms=terms)


# Repeated replies: the same calls with the same results, reply after reply. The text beside the calls may differ, since
# a model words the same step anew. So may the error of a call, which often names a time or a request. A result that
# differs, a wait that ended, a message of a person and a summary are news for the model: the count begins again.


def is_stuck(now: Continuation, frame: Frame) -> bool:
    """Say whether people must be asked before the frame's next model call: it has repeated itself too often.

    A person who lets the frame continue allows as many replies again.
    """
    if frame.turn - max(frame.cleared, 0) < MAX_SAME_REPLIES or list_undelivered(now, frame.id):
        return False
    return count_repeats(frame) >= MAX_SAME_REPLIES


def count_repeats(frame: Frame) -> int:
    """Count the last replies in a row that made the same calls with the same results."""
    messages = frame.messages
    turns = (_read_turn(frame, messages[end - 2 : end]) for end in range(len(messages), 1, -2))
    last = next(turns, None)
    if last is None:
        return 0
    return 1 + sum(1 for _ in takewhile(lambda turn: turn == last, turns))


def _read_turn(frame: Frame, messages: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]] | None:
    """Return the calls of a turn and their results, None if it is not a turn or a call of it waited."""
    if [message["role"] for message in messages] != ["model", "results"]:
        return None
    results = messages[1]["results"]
    calls = [frame.find(result["call"]) for result in results]
    if any(
        call.terms is not None and call.terms.waits and call.state is CallState.RETURNED
        for call in calls
    ):
        return None
    turn: list[tuple[Any, ...]] = []
    for call, result in zip(calls, results, strict=True):
        ignored = ("call",) if result["outcome"] == CallState.RETURNED else ("call", "content")
        compared = {name: value for name, value in result.items() if name not in ignored}
        turn.append((call.tool, call.proposed, compared))
    return turn


# Compaction: a summary replaces earlier messages, so that a long run stays bounded. Only a frame that will call its
# model next is compacted, so it has no open call. Its input and its last turn stay. The calls of earlier turns go with
# their messages: the journal has them. A summary of what a run remembers is made likewise: before the first turn, in
# place of the texts.


def needs_compaction(frame: Frame) -> bool:
    """Say whether the frame must be compacted before its next model call: it is too long and can be cut."""
    terms = frame.compaction
    if terms is None or frame.state is not FrameState.ASKING or cut_point(frame) < 3:
        return False
    if terms.messages is not None and len(frame.messages) > terms.messages:
        return True
    if terms.bytes is None:
        return False
    # In bytes as the model gets them, with arguments and stored results.
    stored: Iterator[int] = (
        result["stored"]["size"]
        for message in frame.messages
        for result in message.get("results", ())
        if "stored" in result
    )
    args = [call.args for call in frame.calls]
    return sum(stored) + _measure_json(frame.messages) + _measure_json(args) > terms.bytes


def cut_point(frame: Frame) -> int:
    """Return the position of the last reply; the messages before it can be replaced. 0 without one."""
    places = [index for index, message in enumerate(frame.messages) if message["role"] == "model"]
    return places[-1] if places else 0


def compact(now: Continuation, event: Compacted) -> Continuation:
    """Return the run after the event. Raises IllegalTransition if the frame has an open call or too few messages."""
    frame = now.frame(event.frame)
    state = look_up_next_state(FRAMES, frame.state, event.type, subject=frame.id)
    if not 1 < event.until == cut_point(frame):
        raise IllegalTransition("Frame", f"cut at {cut_point(frame)}", event.type, frame.id)
    summary = {"role": SUMMARY, "content": event.summary, "of": event.until - 1}
    frame = replace(
        frame,
        state=state,
        attempt=1,
        failures=0,
        outage=None,
        cut=None,
        messages=(frame.messages[0], summary, *frame.messages[event.until :]),
        calls=frame.list_turn_calls(),
    )
    return replace(now.with_frame(frame), usage=add_usage(now.usage, event.usage))


def needs_memory_summary(now: Continuation, frame: Frame) -> bool:
    """Say whether the frame's next model call sums up what the run remembers."""
    if not now.memory_tokens or frame.id != ROOT or frame.state is not FrameState.ASKING:
        return False
    return bool(now.memory) and now.memory[0].kind != "summary" and frame.turn == 0


def summarise_memory(now: Continuation, event: MemorySummarised) -> Continuation:
    """Return the run after the event. Raises IllegalTransition if no summary is due."""
    frame = now.frame(event.frame)
    if not needs_memory_summary(now, frame):
        raise IllegalTransition("Frame", "without a memory to sum up", event.type, frame.id)
    state = look_up_next_state(FRAMES, frame.state, event.type, subject=frame.id)
    summary = Remembered(
        run=now.run, kind="summary", by=frame.agent, at=event.at, digest=event.digest
    )
    frame = replace(frame, state=state, attempt=1, failures=0, outage=None, cut=None)
    now = replace(now.with_frame(frame), memory=(summary,))
    return replace(now, usage=add_usage(now.usage, event.usage))


def _measure_json(value: Any) -> int:
    return len(json.dumps(value, separators=(",", ":")))


# The plan: items that a model writes, ticks and adds with the tool `plan`. The result of each such call is the whole
# plan, so the last result is the plan. The calls of one turn are made one after the other, in the model's order. A
# compaction leaves the plan as it is.


def change_plan(
    plan: Plan,
    *,
    write: Sequence[str] | None = None,
    add: Sequence[str] = (),
    done: Sequence[int] = (),
    doing: int | None = None,
) -> Plan:
    """Return the plan with these changes, made in this order. Raises ValueError with a text for the model."""
    if write is None and not add and not done and doing is None:
        raise ValueError("give at least one of write, add, done and doing")
    items = [*(plan if write is None else map(_read_item, write)), *map(_read_item, add)]
    if len(items) > MAX_PLAN_ITEMS:
        raise ValueError(f"a plan has at most {MAX_PLAN_ITEMS} items, and this has {len(items)}")
    for number in done:
        _require_number(number, items, "done")
        items[number - 1] = _with_state(items[number - 1], "done")
    if doing is not None:
        _require_number(doing, items, "doing")
        items = [_with_state(item, "open") if item.state == "doing" else item for item in items]
        items[doing - 1] = _with_state(items[doing - 1], "doing")
    changed = tuple(items)
    if len(json.dumps(make_plan_result(changed), separators=(",", ":"))) > KEPT_INLINE:
        # The entry of the call must have all of it.
        raise ValueError("its items are too long together: write them shorter")
    return changed


def make_plan_result(plan: Plan) -> dict[str, Any]:
    """Return the result of a call of the tool."""
    return {_PLAN_FIELD: _PLAN.dump_python(plan, mode="json")}


def read_plan(result: Any) -> Plan | None:
    """Return the plan in a result, None if it has none."""
    try:
        return _PLAN.validate_python(result[_PLAN_FIELD])
    except (ValidationError, LookupError, TypeError):
        return None


def keep_plan(frame: Frame, call: Call) -> Frame:
    """Return the frame with the plan that a returned call has for its result."""
    if call.terms is None or not call.terms.plan:
        return frame
    plan = read_plan(call.result)
    return frame if plan is None else replace(frame, todo=plan)


def find_current_number(plan: Plan) -> int | None:
    """Return the number of the item at work: the one that the model named, or the first that is not done."""
    for state in ("doing", "open"):
        for number, item in enumerate(plan, 1):
            if item.state == state:
                return number
    return None


def find_current_item(plan: Plan) -> dict[str, Any] | None:
    """Return the item at work as JSON, with its number and the size of the plan. None if no item is left."""
    number = find_current_number(plan)
    if number is None:
        return None
    return {"item": plan[number - 1].text, "number": number, "of": len(plan)}


def _read_item(text: str) -> PlanItem:
    line = " ".join(text.split())
    if not 0 < len(line) <= MAX_PLAN_ITEM:
        raise ValueError(
            f"an item has 1 to {MAX_PLAN_ITEM} characters, and this has {len(line)}: {line[:40]}"
        )
    return PlanItem(text=line)


def _with_state(item: PlanItem, state: Literal["open", "doing", "done"]) -> PlanItem:
    return PlanItem(text=item.text, state=state)


def _require_number(number: int, items: Sequence[PlanItem], field: str) -> None:
    if not 1 <= number <= len(items):
        raise ValueError(f"{field}: there is no item {number}; the plan has {len(items)}")
