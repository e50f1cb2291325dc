"""Reads matrix.txt, which says who gets which answer where, and sends its requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client, override_settings
from pytest_django import Settings

from agents.sdk import prompt
from agents.tools.mcp import mcp_tools
from agents.tools.mcp_definitions import Definition, write_definitions
from agents.tools.mcp_gateway import mcp_gateway
from approvals import clock
from approvals.governance import allowance_changes, policies, prompt_versions, subscriptions
from approvals.governance import prompt_list as trials
from approvals.governance.subscriptions import Act, SubscriptionTerms
from approvals.models import Approval, OutboxMessage
from approvals.people import accounts, instances, password_links, preferences, tokens
from approvals.rights.principals import ALL_SCOPES, Scope
from approvals.rules.policy import Group
from runtime.control import jobs
from runtime.control.external_events import deliver
from runtime.control.interventions import hold
from runtime.control.transfer import export_run
from runtime.core.values.enums import EffectClass
from runtime.core.values.json_values import file_value
from runtime.models import BlobReference, KillSwitch, Occurrence, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.tables.jobs import PREVIEWS, REPLAYS, TRIALS
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes as trigger_changes
from runtime.triggers import webhooks
from runtime.upkeep import retention
from tests.support import seeds
from tests.support.fake_ports import FakeTool
from tests.support.files import PNG
from tests.support.forged_exports import Sender
from tests.support.notices import hears
from tests.support.office import BEA, NEWCOMER, Office, reseal
from tests.support.released import released
from tests.support.seeds import PASSWORD, Cast, decide
from tests.support.specs import spec_of

Places = dict[str, Any]
CHANNEL = {"from_risk": "low", "shows": "title"}
ALLOWED = {name: {"rule": "any"} for name in ("username", "security_level")}
SUBSCRIPTION: dict[str, Any] = {
    "name": "Bot",
    "url": "https://example.com/",
    "events": ["run.started"],
}
SCHEDULE = {
    "name": "Hourly",
    "agent": "hr_onboarding",
    "cron": "0 * * * *",
    "input": NEWCOMER,
    "zone": "UTC",
    "missed": "once",
    "overlap": "skip",
}
TRIGGER = {
    "name": "Hires",
    "agent": "hr_onboarding",
    "event": "hired",
    "filter": "data.country == 'DE'",
    "mapping": NEWCOMER,
}
EDITED = {"username": "new.hire", "security_level": 1}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
TOMORROW = (
    f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"  # also if a test begins before midnight
)
LATER = f"{datetime.now(UTC) + timedelta(days=20):%Y-%m-%d}"
DAYS = {"starts": TOMORROW, "ends": TOMORROW}
PROMPT = "hr/welcome"
IDENTITIES = ("anon", "cyril", "ada", "bea", "admin", "disabled", "narrow")
PICTURE = file_value("image/png", PNG)
DRAWS = FakeTool(effect=EffectClass.IDEMPOTENT, body=lambda request: ToolResult(value=PICTURE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One route. `by` is the owner of a token that lacks the scope `without`."""

    method: str
    path: str
    cells: dict[str, str]
    by: str
    without: str

    @property
    def is_api(self) -> bool:
        return self.path.startswith(("/api/", "/scim/")) and "docs" not in self.path


def blank(path: str) -> str:
    """The path with each of its parameters as X."""
    return re.sub(r"\{\w+\}", "X", path)


def _rows() -> Iterator[Row]:
    for line in Path(__file__).with_name("matrix.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            method, path, *rest = line.split()
            cells = dict(zip(IDENTITIES, rest[: len(IDENTITIES)], strict=True))
            by, without = rest[len(IDENTITIES) :]
            yield Row(method=method, path=path, cells=cells, by=by, without=without)


ROWS = list(_rows())


@pytest.fixture
def places(
    office: Office,
    cast: Cast,
    published: None,
    tmp_path: Path,
    settings: Settings,
    object_store: object,
) -> Places:
    """The objects named by the paths. Changes are rolled back after each cell."""
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    left = office.start()
    parcel = export_run(run=left, actor=Actor(person="admin"))
    office.effects.tools["create_account"] = DRAWS
    run, doubtful = office.start(), office.in_doubt()
    doubt = office.in_doubt_request(doubtful)
    reseal([doubt], not_before=None)  # long past
    parked = office.start()  # its journal verifies
    Run.objects.filter(id=parked).update(status="quarantined", due_at=None)
    halt = office.held()
    token, _ = tokens.create(cast.ada, ALL_SCOPES)
    accounts.create_person(username="eva", password=PASSWORD, groups=[])
    accounts.set_groups("eva", [Group.REVIEWERS], actor="second")
    approval = office.request(run)
    return {
        "clients": {},
        "run": run,
        "parcel": json.loads(sender.send(parcel)),
        "position": 1,
        "approval": approval.id,
        "digest": approval.approval_digest,
        "parked": parked,
        "failed": office.failed(),
        **_kept(office),
        "halt": halt.id,
        "haltdigest": halt.approval_digest,
        "doubt": doubt.id,
        "doubtrun": doubtful,
        "doubtgate": doubt.gate,
        "token": token.public_id,
        "person": "bea",
        "link": password_links.create("eva", actor="admin").plain,
        "stop": KillSwitch.objects.create(agent="hr_onboarding", reason="because").id,
        "view": preferences.save_view("ada", "Urgent", {"q": "risk:high"}).id,
        "schedule": trigger_changes.create(
            TriggerKind.SCHEDULE, sent=SCHEDULE, actor=Actor(person="ada")
        ),
        **_skipped(),
        "policy": policies.propose("rules: []", actor=None),
        "allowance": allowance_changes.propose(
            approval.id,
            limits=ALLOWED,
            count=5,
            days=3,
            actor=seeds.person("dora", Group.REVIEWERS),
        ),
        "content": BlobReference.objects.get(run=run).blob_id,
        **_prompt(),
        "replay": _replay(run),
        "gateway": _gateway(tmp_path / "tickets.json"),
        "instance": instances.provision(
            instances.InstanceFields(name="Bot"), actor=Actor(person="admin")
        )[0]["instance"]["id"],
        **_subscription(),
        "provisioner": tokens.create(cast.admin, [Scope.INSTANCES_MANAGE])[0].public_id,
        "preview": _preview(approval),
        "factor": uuid4(),
        "channel": hears("ada", "ada@example.com"),
    }


def _subscription() -> Places:
    """A subscription to events, with a message that was given up."""
    terms = SubscriptionTerms(**SUBSCRIPTION)
    view = subscriptions.subscribe(terms, actor=Actor(person="admin"))
    subscriptions.change(view.id, Act.TEST, actor=Actor(person="admin"))
    OutboxMessage.objects.update(ended_at=clock.read_time(), ending="given up")
    message = OutboxMessage.objects.get().id
    return {"subscription": view.id, "message": message, "act": Act.ROTATE}


def _gateway(file: Path) -> str:
    """A gateway to an MCP server, which no request here reaches."""
    write_definitions(file, [Definition(name="search", description="", schema={"type": "object"})])
    reads = {"effect": "read", "approval": False, "risk": "low"}
    tools = mcp_tools("https://wiki.example/mcp", file, tools={"search": reads})
    released(mcp_gateway("wiki", tools))
    return "wiki"


def _prompt() -> Places:
    """A prompt with a version that is proposed for production, and a later one."""
    released(spec_of("welcomer", instructions=prompt(PROMPT, "Welcome {name}.")))
    for text in ("Welcome {name}!", "Greet {name}."):
        prompt_versions.save(PROMPT, text, actor=None)
    prompt_versions.propose(PROMPT, 1, actor=None)
    return {"prompt": PROMPT, "version": 1, "draft": 2, "trial": _trial()}


def _replay(run: UUID) -> UUID:
    """A replay of the run, which has ended."""
    replay = jobs.replay_run(run=run, actor=Actor(person="admin")).id
    for end in (REPLAYS.begin, REPLAYS.end):
        end(pool.use_django_connection(), replay)
    return replay


def _preview(approval: Approval) -> UUID:
    """A preview of Bea's edit, which waits for a worker."""
    preview = uuid4()
    columns = {"run": approval.run_id, "gate": approval.gate, "by": "bea"}
    PREVIEWS.add(pool.use_django_connection(), preview, **columns, args=json.dumps(EDITED))
    return preview


def _trial() -> UUID:
    """A trial of the draft, which has ended."""
    trial = trials.ask(PROMPT, 2, 1, actor=Actor(person="admin")).stored.id
    TRIALS.begin(pool.use_django_connection(), trial)
    TRIALS.end(pool.use_django_connection(), trial)
    return trial


def _kept(office: Office) -> Places:
    """Ada's run in the archive, and one under a legal hold."""
    archived, held = office.failed(), office.failed()
    assert retention.archive_run(pool.use_django_connection(), archived)
    hold(run=held, reason="lawsuit 7", actor=Actor(person="admin"))
    return {"archived": archived, "held": held}


def _skipped() -> Places:
    """A trigger of Ada's with a webhook, and an event that it skipped."""
    made = trigger_changes.create(TriggerKind.EVENT, sent=TRIGGER, actor=Actor(person="ada"))
    deliver(id="e-0", name="hired", data={"country": "FR"}, actor=Actor(person="admin"))
    Occurrence.objects.update(state="skipped")
    ada = Actor(person="ada")
    hook = webhooks.make(id=made, scheme="header", header="X-Token", actor=ada)
    event = Occurrence.objects.get().number
    return {"trigger": made, "event": event, "hook": hook.address}


def answer(row: Row, identity: str, places: Places, query: str = "", body: Any = None) -> Any:
    """The answer to the usual body, or to this one or the text of one; its changes are rolled back."""
    client = _client_of(row, identity, places["clients"])
    cookies = client.cookies.output(header="", sep=";")
    with transaction.atomic():
        if row.path.rstrip("/").endswith("undo"):
            with override_settings(SIGNOFF_UNDO_SECONDS=60):
                decide(Approval.objects.get(id=places["approval"]), BEA)
        if identity == "disabled":
            User.objects.filter(username="bea").update(is_active=False)
        path = row.path.format(**places) + query
        found: Any
        if row.method == "GET":
            found = client.get(path)
        else:
            sent = body_of(row, identity, places) if body is None else body
            if not isinstance(sent, str):
                sent = json.dumps(sent) if row.is_api else urlencode(sent, doseq=True)
            kind = "json" if row.is_api else "x-www-form-urlencoded"
            found = client.generic(row.method, path, sent, content_type=f"application/{kind}")
        if found.streaming:
            found.streaming_content = list(found.streaming_content)
        transaction.set_rollback(True)
    client.cookies = SimpleCookie(cookies)
    return found


def _client_of(row: Row, identity: str, clients: dict[tuple[str, ...], Client]) -> Client:
    """A client of this identity, for all rows that need the same login."""
    bearer = row.by if row.by != "-" else "bea"
    name = {"disabled": "bea", "narrow": bearer}.get(identity, identity)
    lacks = row.without if identity == "narrow" else ""
    by_token = row.is_api or identity == "narrow"
    key = (name, lacks, str(by_token))
    if key not in clients:
        clients[key] = client = Client(raise_request_exception=False)
        if identity == "anon":
            return client
        person = User.objects.get(username=name)
        if by_token:
            _, plain = tokens.create(person, ALL_SCOPES - {lacks})
            client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {plain}"
        else:
            client.force_login(person)
    return clients[key]


def body_of(row: Row, identity: str, places: Places) -> dict[str, Any]:
    """Return a body that an authorised person would send."""
    given = {"digest": places["digest"], "reason": "because"}
    held = {**given, "digest": places["haltdigest"]}
    why = {"reason": "because"}
    another = {"password": "an0ther long passphrase", "again": "an0ther long passphrase"}
    name = identity if identity in {"cyril", "ada", "bea", "admin"} else "stranger"
    bodies: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("mcp", "mcp/{gateway}"), LIST_TOOLS),
        "login": {"username": name, "password": PASSWORD},
        "batch": {"item": f"{places['approval']}:{places['digest']}", "verdict": "approve"},
        "batch/undo": {"item": places["approval"]},
        "password": {"current": PASSWORD, **another},
        "tokens/add": {"name": "reports", "scopes": ["runs:read"]},
        "account/time": {"zone": "Europe/Berlin", "clock": "12"},
        "profile": {"full_name": "New Hire", "email": "hire@example.com"},
        "password/{link}": another,
        "notices/add": {**CHANNEL, "kind": "mail", "address": "someone@example.com"},
        "notices/hours": {"zone": "Europe/Berlin", "quiet_from": "22:00", "quiet_until": "07:00"},
        "notices/{channel}": CHANNEL,
        "views/add": {"name": "Urgent", "q": "risk:high"},
        **{way: {"text": "rules: []"} for way in ("policies/try", "policies/add")},
        "allow": {"rule.0": "any", "rule.1": "any", "count": "5", "days": "3"},
        "allowance": {"limits": ALLOWED, "count": 5, "days": 3},
        "revoke": why,
        "groups/add": {"group": "finance"},
        **dict.fromkeys(("subscriptions/add", "subscriptions"), SUBSCRIPTION),
        **{way: {"name": "Bot"} for way in ("instances/add", "instances", "instances/tokens")},
        "people/add": {"username": "newhire", "group": ["reviewers"]},
        "groups": {"group": ["reviewers"]},
        "confirm": {"seq": "1"},
        "continue": held,
        "stop": held,
        **dict.fromkeys(("retry", "restore", "hold", "lift-hold"), why),
        "decision": {"verdict": "approve", **given},
        "stops": {"agent": "", **why},
        "version-changes": {"agent": "a", "before": "b", "after": "c", "count": 1, **why},
        "version-changes/withdraw": {"agent": "a", "before": "b", "after": "c", **why},
        "version-decisions/withdraw": {"agent": "a", "before": "b", "after": "c", **why},
        "put": {"agent": "*", "confirm": "every agent", **given},
        "settle": {"outcome": "give_up", **why},
        "run-again": {"confirm": "newhire", **given},
        "happened": {"result": '{"message_id": "1"}', **given},
        **{way: {"until": f"{LATER}T00:00Z", **why} for way in ("extend", "extension")},
        **{way: {"question": "Why?"} for way in ("ask", "questions")},
        "changes": {"reason": "Less.", **given},
        "answer": {"result": "1", **given},
        **{way: {"text": "Looks right."} for way in ("comment", "comments")},
        **{way: {"to": "eva"} for way in ("hand-over", "handover")},
        **{
            way: {"deputy": "ada" if identity == "bea" else "bea", **DAYS}
            for way in ("away", "absences")
        },
        "edit": {"in.security_level": "1", **given},
        "edit/approve": {"arguments": json.dumps(EDITED), **given},
        "previews": {"arguments": EDITED, "digest": places["digest"]},
        "events": {"id": "e-1", "name": "signed", "data": {}},
        **{way: {"text": "Mind the gap."} for way in ("message", "write", "messages")},
        "runs": {"agent": "hr_onboarding", "input": NEWCOMER},
        "imports": places["parcel"],
        "schedules": SCHEDULE,
        "triggers": TRIGGER,
        "webhook": {"scheme": "standard"},
        "try": {**TRIGGER, "sample": {}},
        "backfill": {"first": "2026-01-01", "until": "2026-01-02"},
        "fork": {"position": 1},
        "prompts/{prompt}": {"text": "Welcome {name} now.", "note": "Sooner"},
        "prompts/versions": {"name": PROMPT, "text": "Welcome {name} now."},
        "{version}/label": {"label": "staging"},
        "prompts/label": {"name": PROMPT, "number": 1, "label": "staging"},
        "prompts/propose": {"name": PROMPT, "number": 2},
        **{way: {"name": PROMPT, "number": 1} for way in ("prompts/confirm", "prompts/withdraw")},
        "prompts/trials": {"name": PROMPT, "number": 1, "runs": 2},
        "{draft}/try": {"runs": "2"},
    }
    bodies |= dict.fromkeys(
        ("schedules/new", "{schedule}/change"),
        SCHEDULE if row.is_api else {**SCHEDULE, **_fields_of(NEWCOMER)},
    )
    if row.is_api:
        acts = "end undo claim release resume export {act} lift confirm replays"
        bodies |= {act: {} for act in acts.split()}
        bodies |= dict.fromkeys(("pause", "cancel", "readmit"), why)
    *_, before, last = row.path.rstrip("/").split("/")
    if "triggers/" in row.path and last in ("new", "change"):
        return TRIGGER if row.is_api else {**TRIGGER, "mapping": json.dumps(NEWCOMER)}
    kinds = ("schedules", "triggers", "subscriptions", "instances")
    starters = tuple(f"/api/v1/{kind}/" for kind in kinds)
    if row.path.startswith(starters) and last in ("pause", "run-now", "retry", "remove", "revoke"):
        return {}
    if last == "start":
        return _fields_of(NEWCOMER)
    return dict(bodies.get(f"{before}/{last}") or bodies.get(last, given))


def _fields_of(value: dict[str, Any]) -> dict[str, Any]:
    return {f"in.{name}": one for name, one in value.items()}
