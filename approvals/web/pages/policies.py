"""The page of the policy: the version in force, versions that wait, a draft with its effect, and the history."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from approvals import clock
from approvals.errors import PolicyBroken, PolicyRefused
from approvals.governance import policies as policy_versions
from approvals.governance.policies import SIMULATED_DAYS, PolicyVersion, Simulation, simulate
from approvals.reads import policy_deciders
from approvals.reads.policy_deciders import Deciders
from approvals.rights import principals
from approvals.rights.access import SecondAdmin
from approvals.rights.principals import Scope
from approvals.rules import policy_sentences
from approvals.rules import policy_text as texts
from approvals.rules.policy import Policy
from approvals.rules.policy_sentences import RuleChange
from approvals.rules.policy_text import PolicyInvalid
from approvals.web.pages.policy_forms import RuleForm, build_rule, build_rule_form
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from runtime.web.requests import Audience, admins, read_actor, read_number, read_text, redirect_with


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRow:
    """A version for the page, with its state.

    `changes` compares a waiting version with the one in force; `broken` says why it cannot be read.
    """

    version: PolicyVersion
    state: str
    may_confirm: bool = False
    changes: tuple[RuleChange, ...] = ()
    broken: str = ""


def _require_reader(actor: Actor) -> None:
    """Raise Forbidden for a person who neither decides nor administers."""
    principal = principals.find_principal(actor)
    if principal is None or not (
        principal.has(Scope.APPROVALS_DECIDE) or principal.has(Scope.ADMIN)
    ):
        raise Forbidden("not_eligible", "This person may not read the policy.")


readers = Audience(_require_reader)


@readers.guard_page
def show_policies(request: HttpRequest) -> HttpResponse:
    """Show the policy in force and its versions; for admins also the form of a draft."""
    return _show_page(request)


@readers.guard_page
def show_version(request: HttpRequest, number: int) -> HttpResponse:
    """Show what a version changed in the one that was in force when it was proposed."""
    try:
        versions = policy_versions.read_versions()
        row = _find(versions, number)
    except PolicyBroken as exc:
        return _show_page(request, status=exc.status)
    changes, broken = _compare(versions, row, row.proposed_at)
    context = {"section": "policies", "version": row, "changes": changes, "broken": broken}
    return render(request, "approvals/policy_version.html", context)


@readers.guard_page
def show_deciders(request: HttpRequest) -> HttpResponse:
    """Show who can decide the calls of each tool now, by the policy in force."""
    try:
        tools = policy_deciders.list_tool_deciders(policy_versions.read_current())
    except PolicyBroken as exc:
        return _show_page(request, status=exc.status)
    context = {
        "section": "policies",
        "asking": [tool for tool in tools if tool.asks],
        "silent": [tool for tool in tools if not tool.asks],
    }
    return render(request, "approvals/policy_deciders.html", context)


@readers.guard_page
def export(request: HttpRequest, number: int) -> HttpResponse:
    """Download one version as YAML; 1 is the default policy."""
    text = texts.DEFAULT
    if number != policy_versions.FIRST_NUMBER - 1:
        try:
            text = _find(policy_versions.read_versions(), number).text
        except PolicyBroken as broken:
            return _show_page(request, status=broken.status)
    response = HttpResponse(text, "application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="policy-{number}.yaml"'
    return response


def _find(versions: tuple[PolicyVersion, ...], number: int) -> PolicyVersion:
    for version in versions:
        if version.number == number:
            return version
    raise Http404


@admins.action
def try_draft(request: HttpRequest) -> HttpResponse:
    """Check a draft, and show the requests of the last 30 days that it would have changed. Saves nothing."""
    draft = read_text(request.POST, "text")
    try:
        simulation = simulate(policy_versions.check(draft))
    except InvalidInput as refused:
        return _show_page(request, draft, problem=f"The policy {refused.detail}.", status=422)
    return _show_page(request, draft, simulation=simulation)


@admins.action
def change_draft(request: HttpRequest) -> HttpResponse:
    """Add, change, remove or move one rule of the draft that the form has. Saves nothing.

    `act` names what to do, and the number of the rule from 0: `edit:1`, `save:1`, `remove:1`, `up:1`, `down:1`. A new
    rule has no number.
    """
    draft = read_text(request.POST, "text")
    act, _, text = request.POST.get("act", "").partition(":")
    rule_number = read_number(text, digits=3)
    try:
        rules = texts.parse(draft).rules
        number = len(rules) if rule_number is None else rule_number
        if act == "edit":
            rule_form = build_rule_form(rules[number]) if number < len(rules) else RuleForm()
            return _show_page(request, draft, rule_form=rule_form, number=number)
        if act == "save":
            return _save_rule(request, draft, number, len(rules))
        items = list(range(len(rules)))
        target = number + {"up": -1, "down": 1}.get(act, 0)
        if act == "remove" and number < len(rules):
            items.remove(number)
        elif number < len(rules) and 0 <= target < len(rules):
            items[number], items[target] = items[target], items[number]
        if items != [*range(len(rules))]:
            draft = policy_sentences.rewrite(draft, items)
    except PolicyInvalid as refused:
        return _show_page(
            request, draft, problem=f"The policy has an error in {refused}.", status=422
        )
    return _show_page(request, draft)


def _save_rule(request: HttpRequest, draft: str, number: int, count: int) -> HttpResponse:
    """Put the rule of the form in the draft, or show the error in it."""
    form = RuleForm(request.POST)
    try:
        rule = build_rule(form.read())
        items: list[policy_sentences.Item] = [*range(count)]
        items[number : number + 1] = [rule]
        return _show_page(request, policy_sentences.rewrite(draft, items))
    except InvalidInput:
        problem = ""
    except PolicyInvalid as refused:
        problem = f"{refused.field.partition('.')[2] or 'the rule'} {refused.detail}"
    return _show_page(
        request, draft, rule_form=form, number=number, rule_problem=problem, status=422
    )


@admins.action
def propose(request: HttpRequest) -> HttpResponse:
    """Save a draft as a new version, which then waits for another admin."""
    draft = read_text(request.POST, "text")
    try:
        number = policy_versions.propose(draft, actor=read_actor(request).person)
    except InvalidInput as refused:
        return _show_page(request, draft, problem=f"The policy {refused.detail}.", status=422)
    except PolicyRefused as refused:
        return _show_page(request, draft, problem=str(refused), status=refused.status)
    message = f"Version {number} is saved. It is not in force yet."
    return redirect_with(request, message, "policies")


# The acts on a version that waits: their function, and the new state of the version.
ACTS: Mapping[str, tuple[Callable[..., None], str]] = {
    "confirm": (policy_versions.confirm, "in force"),
    "withdraw": (policy_versions.withdraw, "withdrawn"),
}


@admins.action
def change(request: HttpRequest, number: int, act: str) -> HttpResponse:
    """Do an act of the table on a version, or show why it is refused."""
    function, state = ACTS[act]
    try:
        function(number, actor=read_actor(request).person)
    except PolicyRefused as refused:
        return _show_page(request, problem=str(refused), status=refused.status)
    return redirect_with(request, f"Version {number} is {state}.", "policies")


def _show_page(
    request: HttpRequest,
    draft: str | None = None,
    *,
    problem: str = "",
    simulation: Simulation | None = None,
    rule_form: RuleForm | None = None,
    number: int | None = None,
    rule_problem: str = "",
    status: int = 200,
) -> HttpResponse:
    broken, versions, policy = "", tuple[PolicyVersion, ...](), Policy()
    at = clock.read_time()
    try:
        versions = policy_versions.read_versions()
        policy = policy_versions.select_policy_at(versions, at)
    except PolicyBroken as exc:
        broken = str(exc)
    people = Deciders(policy)
    now = policy_versions.find_version_in_force(versions, at)
    rows = [_build_row(versions, version, now, request) for version in reversed(versions)]
    current = now.text if now else texts.DEFAULT
    draft_text = current if draft is None else draft
    draft_rules: tuple[RuleChange, ...] | None = None
    with suppress(PolicyInvalid):
        draft_rules = policy_sentences.compare(policy, texts.parse(draft_text))
    rule_yaml = ""
    if number is not None and not rule_form:
        rule_yaml = policy_sentences.write_rule_yaml(texts.parse(draft_text).rules[number])
    context = {
        "section": "policies",
        "number": now.number if now else policy_versions.FIRST_NUMBER - 1,
        "current": current,
        "problems": people.find_problems(),
        "rules": policy_sentences.compare(policy, policy),
        "waiting": [row for row in rows if row.state == "waiting"],
        "past": [row for row in rows if row.state != "waiting"],
        "draft": draft_text,
        "draft_rules": draft_rules,
        "rule_form": rule_form,
        "rule_number": number,
        "rule_yaml": rule_yaml,
        "rule_problem": rule_problem,
        "tried": draft is not None,
        "max_text": texts.MAX_TEXT,
        "problem": problem,
        "broken": broken,
        "simulation": simulation,
        "days": SIMULATED_DAYS,
    }
    return render(request, "approvals/policies.html", context, status=status)


def _build_row(
    versions: tuple[PolicyVersion, ...],
    version: PolicyVersion,
    now: PolicyVersion | None,
    request: HttpRequest,
) -> VersionRow:
    state = policy_versions.name_state(version, now, clock.read_time())
    if state != "waiting":
        return VersionRow(version=version, state=state)
    may = SecondAdmin(author=version.author).may_be(read_actor(request).person)
    changes, broken = _compare(versions, version, clock.read_time())
    return VersionRow(version=version, state=state, may_confirm=may, changes=changes, broken=broken)


def _compare(
    versions: tuple[PolicyVersion, ...], version: PolicyVersion, at: datetime
) -> tuple[tuple[RuleChange, ...], str]:
    """Compare a version with the one in force at this time; or say why one of them cannot be read."""
    try:
        before, after = (
            policy_versions.select_policy_at(versions, at),
            policy_versions.decode_policy(version),
        )
    except PolicyBroken as exc:
        return (), str(exc)
    return policy_sentences.compare(before, after), ""
