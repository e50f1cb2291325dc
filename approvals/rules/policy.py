"""The data of a policy: an ordered list of rules, and what a rule demands of an approval, also later. Pure.

The default policy stands here too: which calls wait for a person, and which group may decide which risk.

All times of an escalation follow from the demands and the deadline with which the approval opened, and its digest
covers both.
So no process has to escalate for people to be able to decide, and a worker that verifies a vote finds the same people
as the web did.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from runtime.core.values.enums import Risk

POLICY_VERSION = "1"
GROUP, PERSON = "group:", "person:"
# Of Demands, if not set.
_OMITTED = ("escalate", "on_expiry", "answer", "reviewer_may_write", "step_up")
MAX_QUORUM = 10
ESCALATE = "escalate"
STEP_UP_TIME = timedelta(minutes=5)  # how old the second factor of a decision may be
_SKEW = timedelta(minutes=1)  # by which the clock of a provider may be ahead
BEGINNING = datetime.min.replace(tzinfo=UTC)  # before every step


class Group(StrEnum):
    """The groups of people; one person may be in several."""

    REQUESTERS = "requesters"  # start runs
    REVIEWERS = "reviewers"  # decide about other people's runs
    ADMINS = "admins"  # administer and read everything; do not decide


DECIDERS: Mapping[str, frozenset[str]] = {
    Risk.LOW: frozenset({Group.REVIEWERS}),
    Risk.MEDIUM: frozenset({Group.REVIEWERS}),
    Risk.HIGH: frozenset({Group.REVIEWERS}),
}

# The risks of calls whose decisions can be undone for some seconds.
UNDOABLE = frozenset({Risk.LOW, Risk.MEDIUM})

# The groups whose members decide anything at all.
DECIDING = frozenset().union(*DECIDERS.values())

# Rights of a person that are no group of a policy.
_RIGHTS = frozenset({*Group, "password"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a request: `quorum` distinct people of these groups, or these people, must approve.

    Without groups and people, everyone who may decide at all is eligible.
    """

    quorum: int = 1
    groups: tuple[str, ...] = ()
    people: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The eligible groups and people, as texts that `list_keys` a person may contain."""
        keys = (*(GROUP + name for name in self.groups), *(PERSON + name for name in self.people))
        return keys or tuple(GROUP + name for name in sorted(DECIDING))

    def is_eligible(self, person: str, groups: Collection[str]) -> bool:
        """Tell whether this person is eligible. They also need the right to decide, see `policy.may_decide`."""
        return not set(self.keys).isdisjoint(list_keys(person, groups))


class OnExpiry(StrEnum):
    """The consequence if people did not decide before the last deadline. None of them lets the call start."""

    DENY = "deny"  # the call is denied
    FAIL = "fail"  # the call is denied, and its run fails
    ANSWER = "answer"  # the call gets the rule's answer as its result, without being made


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """One step of escalation: at the deadline before it, these groups and people may decide too, for `seconds` more."""

    seconds: float
    groups: tuple[str, ...] = ()
    people: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """The groups and people as in `Stage.keys`."""
        return (*(GROUP + name for name in self.groups), *(PERSON + name for name in self.people))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a rule demands of the decision on a request; stored with the request and covered by its digest.

    `failed` says why a condition failed, if these are the strictest demands for that reason. `undo` is how many seconds
    a decision at low or medium risk can be undone; None leaves it to the installation. `answer` is the JSON value of
    ANSWER. `reviewer_may_write` lets people who may decide write to the run and still decide this request. `step_up`
    asks each of them for a fresh second factor.
    """

    rule: str
    stages: tuple[Stage, ...] = (Stage(),)
    reason: bool = False
    failed: str = ""
    undo: float | None = None
    escalate: tuple[Escalation, ...] = ()
    on_expiry: OnExpiry = OnExpiry.DENY
    answer: Any = None
    reviewer_may_write: bool = False
    step_up: bool = False

    def accept(self, authenticated: Mapping[str, str] | None, at: datetime) -> bool:
        """Tell whether a person may decide at this time who proved so who they are, see `Actor`."""
        return not self.step_up or is_fresh(authenticated, at)

    @property
    def quorum(self) -> int:
        """The number of people who must approve, over all stages."""
        return sum(stage.quorum for stage in self.stages)

    @property
    def readers(self) -> tuple[str, ...] | None:
        """The groups and people who may decide at any time, as in `Stage.keys`; None for every reviewer."""
        if any(not (stage.groups or stage.people) for stage in self.stages):
            return None
        stages = (key for stage in self.stages for key in stage.keys)
        steps = (key for step in self.escalate for key in step.keys)
        return tuple(dict.fromkeys((*stages, *steps)))

    def demand_one_person(self) -> "Demands":
        """Return the demands for a question: any one person whom one of the stages admits may answer it."""
        groups = [key for stage in self.stages for key in stage.keys if key.startswith(GROUP)]
        people = [person for stage in self.stages for person in stage.people]
        stage = Stage(
            groups=tuple(dict.fromkeys(key.removeprefix(GROUP) for key in groups)),
            people=tuple(dict.fromkeys(people)),
        )
        return replace(self, stages=(stage,))

    def stored(self) -> str:
        """Return the demands as the JSON text that a request stores, without later settings that are not set."""
        document = asdict(self)
        for setting in fields(self):
            if (
                setting.name in _OMITTED
                and document[setting.name] == setting.default
                and setting.default is not MISSING
            ):
                del document[setting.name]
        return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: the calls it matches, and its effect on them. Empty fields match every call."""

    name: str
    tools: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    risks: frozenset[str] = frozenset()
    when: str = ""
    approval: bool = False  # a person must approve, also where the tool itself asks for none
    risk: Risk | None = None  # at least this risk
    stages: tuple[Stage, ...] = (Stage(),)
    reason: bool = False
    expires_after: float | None = None  # seconds
    undo: float | None = None  # seconds
    escalate: tuple[Escalation, ...] = ()
    on_expiry: OnExpiry = OnExpiry.DENY
    answer: Any = None
    reviewer_may_write: bool = False
    step_up: bool = False  # each decision needs a fresh second factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A version of the rules. The first rule that matches a call applies; a call that none matches has the default."""

    version: str = POLICY_VERSION
    rules: tuple[Rule, ...] = ()


def is_fresh(authenticated: Mapping[str, str] | None, at: datetime) -> bool:
    """Tell whether the last strong proof of who a person is was at most STEP_UP_TIME ago."""
    proved_at = (authenticated or {}).get("at")
    if proved_at is None:
        return False
    return -_SKEW <= at - datetime.fromisoformat(proved_at) <= STEP_UP_TIME


def list_keys(person: str, groups: Collection[str]) -> tuple[str, ...]:
    """Return the texts that name a person and their groups in `Stage.keys`."""
    return (PERSON + person, *(GROUP + group for group in sorted(groups)))


def decode_demands(stored: str | None) -> Demands | None:
    """Read stored demands; None stands for the default policy. Raises ValueError, KeyError or TypeError."""
    if stored is None:
        return None
    document: dict[str, Any] = json.loads(stored)
    stages = tuple(
        Stage(quorum=stage["quorum"], groups=tuple(stage["groups"]), people=tuple(stage["people"]))
        for stage in document["stages"]
    )
    return Demands(
        rule=document["rule"],
        stages=stages,
        reason=document["reason"],
        failed=document.get("failed", ""),
        undo=document.get("undo"),
        escalate=tuple(
            Escalation(
                seconds=step["seconds"], groups=tuple(step["groups"]), people=tuple(step["people"])
            )
            for step in document.get("escalate", ())
        ),
        on_expiry=OnExpiry(document.get("on_expiry", OnExpiry.DENY)),
        answer=document.get("answer"),
        reviewer_may_write=document.get("reviewer_may_write") is True,
        step_up=document.get("step_up") is True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The next step of a request, at `at`: a step of escalation to these groups and people, or its expiry.

    `step` is ESCALATE or an OnExpiry.
    """

    at: datetime
    step: str
    groups: tuple[str, ...] = ()
    people: tuple[str, ...] = ()


def compute_step_times(demands: Demands, expires_at: datetime) -> tuple[datetime, ...]:
    """Return the time at which each step of escalation begins; `expires_at` is the last deadline."""
    times, at = list[datetime](), expires_at
    for step in reversed(demands.escalate):
        at -= timedelta(seconds=step.seconds)
        times.append(at)
    return tuple(reversed(times))


def count_begun_steps(demands: Demands, expires_at: datetime | None, at: datetime) -> int:
    """Return how many steps of escalation have begun. A request without a deadline has none."""
    return (
        0
        if expires_at is None
        else sum(time <= at for time in compute_step_times(demands, expires_at))
    )


def compute_stages(
    demands: Demands, expires_at: datetime | None, at: datetime
) -> tuple[Stage, ...]:
    """Return the stages with the people who may decide at this time.

    A step adds people to each stage. It takes none away: a request must not become harder to decide by itself.
    """
    steps = demands.escalate[: count_begun_steps(demands, expires_at, at)]
    if not steps:
        return demands.stages
    return tuple(
        replace(
            stage,
            groups=_merge_names(stage.groups, *(step.groups for step in steps)),
            people=_merge_names(stage.people, *(step.people for step in steps)),
        )
        if stage.groups or stage.people
        else stage  # every reviewer may decide
        for stage in demands.stages
    )


def find_next_step(
    demands: Demands | None,
    opened_until: datetime | None,
    at: datetime,
    extended_to: datetime | None = None,
) -> NextStep | None:
    """Return the step that follows if no person decides; None without a deadline.

    An extension of the deadline moves no step of the escalation: it adds time to the last one.
    """
    if opened_until is None:
        return None
    expires_at = extended_to or opened_until
    if demands is None:
        return NextStep(at=expires_at, step=OnExpiry.DENY)
    number = count_begun_steps(demands, opened_until, at)
    if number == len(demands.escalate):
        return NextStep(at=expires_at, step=demands.on_expiry)
    then = demands.escalate[number]
    return NextStep(
        at=compute_step_times(demands, opened_until)[number],
        step=ESCALATE,
        groups=then.groups,
        people=then.people,
    )


def _merge_names(*names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))


def is_named(right: str) -> bool:
    """Tell whether a right is the membership of a group that exists to be named by rules, such as `finance`.

    It counts in the stages that name the group, together with the right to decide.
    """
    return right not in _RIGHTS


def may_decide(
    *,
    requester: str,
    person: str,
    groups: frozenset[str],
    risk: str,
    origin: Collection[str] = (),
    bound: bool = False,
    cooling: bool = False,
) -> Literal["requester", "origin", "not_eligible", "given_by_origin", "cooling_off"] | None:
    """Say why `person` may not decide; None if they may. No group is exempt from four eyes.

    `origin` names the people in the run's origin, who cannot decide in it. `bound` says that one of them gave this
    person the right, `cooling` that the cooling-off period of the right is not over.
    """
    if person == requester:
        return "requester"
    if person in origin:
        return "origin"
    if risk not in list_decidable_risks(groups):
        return "not_eligible"
    if bound:
        return "given_by_origin"
    return "cooling_off" if cooling else None


@lru_cache(256)
def list_decidable_risks(groups: frozenset[str]) -> frozenset[str]:
    """Return the risks that a person in `groups` may decide. No group may decide an unknown risk."""
    return frozenset(str(risk) for risk, deciders in DECIDERS.items() if deciders & groups)
