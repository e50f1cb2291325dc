"""Odd values: a seeded history of 90 days with twelve planted ones, and the rules on small histories."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from approvals.models import Approval, ToolSchema
from approvals.reads import approval_views
from approvals.reads import usual as past_calls
from approvals.reads.approval_views import ApprovalView
from approvals.requests import snapshot
from approvals.rights import principals
from approvals.rights.principals import Principal
from approvals.rules.argument_values import MIN_HISTORY, learn
from approvals.rules.unusual_values import (
    describe_usual_values,
    find_unusual_values,
    is_always_different,
)
from runtime.keyring import sealing
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.costs import blocks_of
from tests.support.pages import queries_at_most

Args = dict[str, Any]

PAYEES = {
    "billing@paypal.com": "DE89370400440532013000",
    "accounts@acme-supplies.com": "DE12500105170648489890",
    "invoices@globex.example": "NL91ABNA0417164300",
    "office@initech.example": "GB29NWBK60161331926819",
}
NAMES = ("Ada", "Bea", "Cyril", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jule")
ROLES = ("reader", "editor", "billing")


def _paid(r: random.Random) -> Args:
    to = r.choice(list(PAYEES))
    args = {
        "payment_id": f"pay-{r.randrange(10**9):09}",
        "amount": round(r.gauss(1_280, 15), 2),
        "currency": "EUR",
        "to": to,
        "iban": PAYEES[to],
        "reference": f"Invoice {r.randrange(10**6)} of {r.choice(NAMES)}",
    }
    return args | ({"urgent": True} if r.random() < 0.3 else {})


def _granted(r: random.Random) -> Args:
    return {
        "username": f"{r.choice(NAMES).lower()}.{r.choice(NAMES).lower()}{r.randrange(10**4)}",
        "level": r.choice((1, 1, 2, 2, 3)),
        "roles": r.sample(ROLES, r.randint(1, 3)),
        "ticket": 41_000 + r.randrange(3_000),
        "until": f"2026-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
    }


def _mailed(r: random.Random) -> Args:
    host = r.choice(("customer.example", "mail.example", "northwind.com", "contoso.com"))
    return {
        "to": f"{r.choice(NAMES).lower()}{r.randrange(10**5)}@{host}",
        "subject": f"Your order {r.randrange(10**6)}",
        "body": f"Hello {r.choice(NAMES)},\n\n\tyour order left us at {r.randrange(24)}:00 ❤️ 👩‍🚀.\n",
        "options": {"html": False, "copies": r.choice((0, 0, 1))},
    }


def _deleted(r: random.Random) -> Args:
    return {
        "table": r.choice(("sessions", "carts", "drafts")),
        "rows": round(r.lognormvariate(4, 1)) + 1,
        "dry_run": r.random() < 0.5,
        "price": f"{r.uniform(5, 50):.2f}",
    }


TOOLS = {"pay": _paid, "grant": _granted, "mail": _mailed, "delete_rows": _deleted}
PLANTED: list[tuple[str, Args, set[tuple[str, str]]]] = [
    ("pay", {"amount": 12_850.0}, {("amount", "scale")}),
    ("pay", {"amount": 1_900}, {("amount", "range")}),
    ("pay", {"to": "billing@paypa1.com"}, {("to", "look_alike"), ("to", "letters")}),
    ("pay", {"iban": "DE89370400440532013001"}, {("iban", "look_alike")}),
    (
        "pay",
        {"currency": "USD"},
        {("currency", "unseen")},
    ),  # approved 91 days ago, and denied since
    ("pay", {"bcc": "eve@globex.example"}, {("bcc", "unseen")}),
    ("grant", {"level": 5}, {("level", "unseen")}),
    ("grant", {"roles": ["reader", "payroll-admin"]}, {("roles", "unseen")}),
    ("grant", {"until": None}, {("until", "unset")}),
    ("mail", {"subject": "Your or\u200bder"}, {("subject", "invisible")}),
    ("mail", {"options": {"html": True, "copies": 0}}, {("options", "rare")}),  # once approved
    ("delete_rows", {"price": "1e9"}, {("price", "unseen")}),
]


def _rows(tool: str, calls: Sequence[Args], **changed: Any) -> Iterator[Approval]:
    """Requests of a tool as the engine writes them, without their runs."""
    for args in calls:
        shown = replace(seeds.snapshot(uuid4(), args=args), tool=tool, schema={"type": "object"})
        shown = replace(
            shown,
            action_digest=snapshot.compute_action_digest(snapshot.build_request(shown, NOW)) or "",
        )
        approval = snapshot.build_request(shown, NOW)
        for name, value in changed.items():
            setattr(approval, name, value)
        yield approval


NOW = timezone.now()
DECIDED = {"decided_by": "bea", "reason": "", "statement": "", "signature": "", "key_id": ""}


def _decided(tool: str, args: Args, at: datetime, status: str = "approved") -> Approval:
    (approval,) = _rows(tool, [args], status=status, decided_at=at, **DECIDED)
    return approval


def _reader(person: str = "bea") -> Principal:
    principal = principals.find_principal(Actor(person=person))
    assert principal is not None
    return principal


def _flags(rows: Sequence[Approval], reader: Principal) -> dict[UUID, set[tuple[str, str]]]:
    views = [approval_views.to_view(approval, reader) for approval in rows]
    assert {view.tampered for view in views} == {None}
    found = past_calls.find_unusual_in_list(views, reader).by_request
    return {
        approval.id: {(one.argument, str(one.kind)) for one in found[approval.id]}
        for approval in rows
    }


@pytest.mark.django_db
def test_twelve_planted_oddities_of_90_days_are_flagged_and_no_others(bea: Actor) -> None:
    r = random.Random(7)
    past = [
        _decided(tool, make(r), NOW - timedelta(minutes=r.randrange(90 * 24 * 60)))
        for tool, make in TOOLS.items()
        for _ in range(150)
    ]
    past.append(_decided("mail", {**_mailed(r), **PLANTED[10][1]}, NOW - timedelta(days=3)))
    past.append(_decided("pay", {**_paid(r), "currency": "USD"}, NOW - timedelta(days=91)))
    denied = [{**_paid(r), "currency": "USD"} for _ in range(20)]
    past += [_decided("pay", args, NOW - timedelta(days=1), "denied") for args in denied]
    ordinary = [
        approval
        for tool, make in TOOLS.items()
        for approval in _rows(tool, [make(r) for _ in range(50)])
    ]
    planted = [
        approval
        for tool, args, _ in PLANTED
        for approval in _rows(tool, [{**TOOLS[tool](r), **args}])
    ]
    Approval.objects.bulk_create(past)
    ToolSchema.objects.create(digest=past[0].schema, body='{"type":"object"}')
    with queries_at_most(6):  # the rights, the history, and schemas
        flags = _flags([*ordinary, *planted], _reader())
    assert {approval.args: found for approval in ordinary if (found := flags[approval.id])} == {}
    assert [flags[approval.id] for approval in planted] == [expected for _, _, expected in PLANTED]


def _odd(past: Iterable[Any], now: Any) -> list[str]:
    """The kinds of the oddities of a value of `x` beside past ones. Ellipsis is a value that is not given."""
    calls = [{} if value is ... else {"x": value} for value in [*past, now]]
    return [str(one.kind) for one in find_unusual_values(calls[-1], learn(calls[:-1]))]


WORDS = ["red"] * 15 + ["green"] * 15
AMOUNTS = [1_250, 1_260, 1_270, 1_275, 1_280, 1_285, 1_290, 1_295, 1_300, 1_310]


@pytest.mark.parametrize(
    ("past", "now", "kinds"),
    [
        (WORDS, "red", []),
        (WORDS, "blue", ["unseen"]),
        ([*WORDS, "blue"], "blue", ["rare"]),
        ([*WORDS, "blue", "blue"], "blue", []),  # 6 percent
        ([*WORDS, *map(str, "abcde")], "f", []),  # now and then it is a new one
        (WORDS, ..., ["unset"]),
        ([*WORDS, ..., ...], ..., []),
        ([..., *[...] * 19], "red", ["unseen"]),
        ([True] * 20, False, ["unseen"]),
        ([{"a": n} for n in range(30)], {"b": 1}, ["unseen", "unset"]),
        ([{"a": "eu"}] * 20, {"a": "us"}, ["unseen"]),
        ([["a", "b"]] * 20, ["a", "b", "c"], ["unseen"]),
        ([["a"]] * 20, [], ["unset"]),
        (WORDS, 7, ["unseen"]),
        ([1, 2, 3] * 10, "2", ["unseen"]),
        ([1, 2, 4] * 10, 3, ["unseen"]),
        (AMOUNTS, 1_305, []),
        (AMOUNTS, 1_330, []),  # a little more than ever, which happens
        (AMOUNTS, 1_500, ["range"]),
        (AMOUNTS, 900, ["range"]),
        (AMOUNTS, 12_500, ["scale"]),
        (AMOUNTS, 128, ["scale"]),
        (AMOUNTS, -1_280, ["range"]),
        (AMOUNTS, 0, ["range"]),
        ([*AMOUNTS, 12_500], 12_500, ["scale"]),  # one wrong number that was approved is no rule
        ([*AMOUNTS, 12_500, 12_600], 12_500, []),
        ([*AMOUNTS, "1,250"], 12_500, ["scale"]),
        (range(5, 51, 3), 200, ["range"]),
        (range(5, 51, 3), -20, ["range"]),  # of another sign than all before
        ([40.0] * 20, 40, []),
        ([40] * 20, 41, ["range"]),
        ([2**n for n in range(20)], 2**20, []),  # a long tail
        (["12.50", "13.10", "9.99", "20"] * 5, "199", ["scale"]),
        (["home"] * 20, "hope", ["unseen"]),  # too short to be called alike
        (["office@acme.example"] * 20, "Office@acme.example", ["unseen"]),
        (["office@acme.example"] * 20, "office@acrne.example", ["look_alike"]),
        (["office@acme.example"] * 20, "offcie@acme.example", ["look_alike"]),
        ([f"u{n}@acme-supplies.com" for n in range(20)], "u99@acme-suplies.com", ["look_alike"]),
        ([f"see https://a.example/{n}" for n in range(20)], "see https://b.example/", ["unseen"]),
        (["paypal"] * 20, "pay\u200bpal", ["look_alike", "invisible"]),
        ([f"id-{n}x" for n in range(20)], "id-99y", []),
        ([], "p\u0430ypal", ["letters"]),
        ([], "a\u00a0b", ["invisible"]),
        ([], " a b\t\n 1\ufe0f\u20e3 \u2764\ufe0f", []),
        ([], "a\u200db\ufe0f", ["invisible"]),
        ([], "a" + "\u0301" * 4, []),
        ([], "a" + "\u0301" * 5, ["invisible"]),
        ([], "https://paypal.com@evil.example/", ["letters"]),
        ([], "\uff11\uff12 1\uff12", ["letters"]),
    ],
)
def test_a_value_is_odd_beside_its_history(past: Iterable[Any], now: Any, kinds: list[str]) -> None:
    assert _odd(past, now) == kinds


@pytest.mark.parametrize(("calls", "kinds"), [(MIN_HISTORY - 1, []), (MIN_HISTORY, ["unseen"])])
def test_below_ten_past_values_nothing_is_unusual(calls: int, kinds: list[str]) -> None:
    assert _odd(["red"] * calls, "blue") == kinds
    assert _odd([..., *["red"] * calls, ...], "blue") == kinds
    assert _odd(["red"] * calls, ...) == ["unset"] * len(kinds)


def test_unusual_values_are_told_in_words_with_the_usual_values() -> None:
    past = learn({"amount": amount, "to": {"city": "Bonn"}} for amount in AMOUNTS)
    found = find_unusual_values({"amount": 12_500, "to": {"city": "Rome"}}, past)
    assert [(one.short, one.text) for one in found] == [
        (
            "amount: 10 times the usual value",
            "Usually 1,250 to 1,310 (last 10); this is 10 times that.",
        ),
        (
            "to.city: “Rome” is new",
            "to.city: “Rome” is in none of the last 10 approvals. Usually “Bonn”.",
        ),
    ]
    assert describe_usual_values("amount", past) == "Usually 1,250 to 1,310 (last 10)"
    ids = learn({"id": f"a{n}", "set": {"of": [f"b{n}"]}, "kind": "x"} for n in range(20))
    assert [is_always_different(name, ids) for name in ("id", "set", "kind", "none")] == [
        *[True, True],
        *[False, False],
    ]
    assert [describe_usual_values(name, ids) for name in ("id", "kind")] == [
        "",
        "Usually “x” (last 20)",
    ]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text("a1@./:", max_size=9)
    # Numbers of any size, in any order
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(call=JSON, other=JSON, past=st.lists(JSON, min_size=10, max_size=12))
def test_a_call_like_all_before_is_ordinary_and_any_other_has_an_order(
    call: Any, other: Any, past: list[Any]
) -> None:
    shown = [one for one in find_unusual_values(call, learn([call] * 20)) if one.kind not in ALWAYS]
    assert shown == []
    found = find_unusual_values(other, learn(past))
    assert [one.weight for one in found] == sorted(one.weight for one in found)


NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53) | st.just(10**400)


@given(now=NUMBERS, past=st.lists(NUMBERS, min_size=10, max_size=14))
def test_no_number_is_too_large_or_too_small(now: float, past: list[float]) -> None:
    for one in (*past, now):
        assert len(find_unusual_values({"x": one}, learn({"x": one} for one in past))) <= 1


ALWAYS = ("invisible", "letters")  # found without a history


@pytest.mark.django_db
def test_the_history_is_what_the_reader_may_read_without_secrets(bea: Actor, cyril: Actor) -> None:
    def sealed(text: str) -> Args:
        return {"key": sealing.seal(text, sealing.encode_location("pay", "args", "key")), "to": "a"}

    Approval.objects.bulk_create(_decided("pay", sealed(f"s{n}"), NOW) for n in range(12))
    for reader, total in ((_reader(), 12), (_reader("cyril"), 0)):
        assert past_calls.read_histories(["pay"], reader)["pay"].total == total
    asked = ApprovalView(stored=Approval(tool="pay", schema="{}"), reader=_reader())
    odd = past_calls.find_unusual_in_edit(asked, {**sealed("t"), "to": "b"})
    assert [(one.argument, one.kind) for one in odd] == [("to", "unseen")]


PAST = """
    INSERT INTO approvals_approval (id, run_id, gate, kind, frame, call, tool, args, schema, path, effect, risk,
        sentence, action_digest, nonce, policy_version, requester, approval_digest, seal, seal_key_id, status,
        created_at, decided_at, decided_by, reason, statement, signature, key_id)
    SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'approval', '0', 'c1.0', 'pay', '{"a": 1}', '{}',
        '[]', 'write', 'high', '', '', '', '1', %s, '', '', '', 'approved', now(), now() - n * interval '1 second',
        'bea', '', '', '', ''
    FROM generate_series(1, %s) n
"""


@pytest.mark.slow
@pytest.mark.django_db
def test_the_history_costs_at_most_a_block_for_each_call_among_many() -> None:
    given: dict[str, Any] = {
        "tools": ["pay"],
        "since": NOW - timedelta(days=90),
        "before": NOW,
        "limits": [200],
    }
    with connection.cursor() as cursor:
        cursor.execute(PAST, ["ada", 20_000])
        cursor.execute("ANALYZE approvals_approval")
        assert blocks_of(cursor, past_calls.PAST, given) <= past_calls.MAX_PAST + 10
