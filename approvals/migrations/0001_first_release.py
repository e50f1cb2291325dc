"""The tables of approvals, the triggers that refuse changes of signed rows, and those that tell of events."""

import uuid
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models
from django.db.models.functions import Lower

APPEND_ONLY = "\n".join(
    f"""
CREATE TRIGGER approvals_{table}_append_only
    BEFORE UPDATE OR DELETE ON approvals_{table}
    FOR EACH ROW EXECUTE FUNCTION runtime_refuse_change();
"""
    for table in (
        "absence",
        "allowanceact",
        "assignment",
        "auditentry",
        "mappingact",
        "policyact",
        "promptact",
        "versiondecision",
        "versionwithdrawal",
    )
)

# Retention deletes comments.
COMMENTS = """
CREATE TRIGGER approvals_comment_unchanged
    BEFORE UPDATE ON approvals_comment
    FOR EACH ROW EXECUTE FUNCTION runtime_refuse_change();
"""

# Rows whose signed columns never change, and whose last ones are set once: the end, or the outcome of a use. A deleted
# row has no NEW, so that is refused too. A counter that fell would let a code be used again.
END_ONCE = """
CREATE FUNCTION approvals_end_once() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := to_jsonb(OLD);
    after jsonb := to_jsonb(NEW);
    last text[] := TG_ARGV[1];
BEGIN
    IF EXISTS (SELECT FROM unnest(TG_ARGV[0]::text[] || CASE WHEN before ->> last[1] IS NOT NULL THEN last END) name
            WHERE NOT before ? name OR after -> name IS DISTINCT FROM before -> name)
        OR (after ->> 'counter')::bigint < (before ->> 'counter')::bigint THEN
        RAISE EXCEPTION 'rows of % end once, and do not change otherwise', TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
""" + "".join(
    f"""
CREATE TRIGGER approvals_{table}_ends_once BEFORE UPDATE OR DELETE ON approvals_{table}
    FOR EACH ROW EXECUTE FUNCTION approvals_end_once('{{{signed}}}', '{{{last}}}');
"""
    for table, signed, last in (
        ("token", "public_id,owner_id,secret_hash,scopes,created_at,name,expires_at", "revoked_at"),
        ("passwordlink", "public_id,person_id,secret_hash,by,created_at,expires_at", "ended_at"),
        ("instance", "id,owner_id,secret_hash,created_at,idempotency_key", "deleted_at"),
        ("approvaluse", "run,instance_id,idempotency_key,used_at", "outcome,reported_at"),
        ("secondfactor", "id,person_id,kind,name,secret,created_at", "ended_at"),
        (
            "directorytoken",
            "public_id,directory,secret_hash,by,created_at,expires_at",
            "revoked_at",
        ),
    )
)

# `audit_order` finds a row of the audit as well as the index of its number, which no statement uses.
NO_AUDIT_KEY = "ALTER TABLE approvals_auditentry DROP CONSTRAINT approvals_auditentry_pkey"

# Most approvals exclude only their requester, who has an index. GIN writes its first page anew at each insert.
EXCLUDED = """
CREATE INDEX approval_excluded_others ON approvals_approval
    USING gin (excluded jsonb_path_ops)
    WHERE status = 'pending' AND ((excluded -> 1) IS NOT NULL OR (excluded ->> 0) <> requester)
"""

STATISTICS = "CREATE STATISTICS approval_own (mcv) ON requester, status FROM approvals_approval"

GROUPS = "INSERT INTO auth_group (name) VALUES ('requesters'), ('reviewers'), ('admins')"

NOTICES = """
CREATE FUNCTION approvals_approval_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO approvals_outboxmessage (id, kind, destination, lane, subject, next_at)
    SELECT gen_random_uuid(), 'notice', NEW.id::text, 'notices', 'notice ' || NEW.id, clock_timestamp()
    WHERE EXISTS (SELECT FROM approvals_noticechannel);
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_approval_noticed AFTER INSERT ON approvals_approval
    FOR EACH ROW WHEN (NEW.status = 'pending') EXECUTE FUNCTION approvals_approval_notify();
"""

EVENTS = """
CREATE OR REPLACE FUNCTION signoff_tell(
    event text, run uuid, event_at timestamptz, tells_at timestamptz, data jsonb)
    RETURNS void LANGUAGE sql AS $$
    INSERT INTO approvals_outboxmessage
        (id, kind, destination, lane, subject, body, occurred_at, next_at, gives_up_at)
    SELECT gen_random_uuid(), event, s.id::text, 'subscription ' || s.id, s.id || ' ' || run,
        json_build_object('type', event,
            'timestamp', to_char(event_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'data', CASE WHEN s.with_arguments THEN data ELSE data - 'arguments' END)::text,
        event_at, tells_at, event_at + interval '3 days'
    FROM approvals_subscription s
    WHERE s.paused_at IS NULL AND event = ANY (s.events)
        AND s.agent IN ('', data ->> 'agent') AND s.tool IN ('', data ->> 'tool')
        AND (s.risk = '' OR array_position(ARRAY['low', 'medium', 'high'], s.risk)
            <= array_position(ARRAY['low', 'medium', 'high'], data ->> 'risk'))
$$;

CREATE OR REPLACE FUNCTION approvals_approval_tell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    event text := 'approval.' || CASE WHEN NEW.status IN ('expired', 'cancelled') THEN NEW.status
        WHEN NEW.status = 'pending' THEN 'requested' ELSE 'decided' END;
    proposed text := coalesce(NEW.edited, NEW.args);
    arguments jsonb;
    rules jsonb;
BEGIN
    IF NOT EXISTS (SELECT FROM approvals_subscription) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.effective_at IS NOT NULL THEN
        -- The decision was undone or cancelled before it counted.
        DELETE FROM approvals_outboxmessage WHERE kind = 'approval.decided' AND ended_at IS NULL AND attempts = 0
            AND subject IN (SELECT s.id || ' ' || NEW.run_id FROM approvals_subscription s)
            AND body::json #>> '{data,approval}' = NEW.id::text;
    END IF;
    IF NEW.tool <> '' AND octet_length(proposed) <= 32768
            AND EXISTS (SELECT FROM approvals_subscription s WHERE s.with_arguments) THEN
        -- Sealed values, as `runtime.keyring.sealing` writes them. In a text their quotation marks are escaped.
        arguments := regexp_replace(proposed, '\\{"\\$secret": *"[^"]*"\\}', '"••••"', 'g');
        BEGIN
            -- Values that the schema marks as write-only, as `json_schema.write_only` does.
            rules := coalesce((SELECT body FROM approvals_toolschema WHERE digest = NEW.schema), NEW.schema)::jsonb
                -> 'properties';
            IF jsonb_typeof(arguments) = 'object' THEN
                arguments := coalesce((SELECT jsonb_object_agg(key,
                        CASE WHEN rules -> key ? 'writeOnly' THEN '"••••"' ELSE value END)
                    FROM jsonb_each(arguments)), arguments);
            END IF;
        EXCEPTION WHEN data_exception THEN
            arguments := NULL;  -- Postgres cannot read the schema
        END;
    END IF;
    IF TG_OP = 'INSERT' OR NEW.status <> 'pending' THEN
        PERFORM signoff_tell(event, NEW.run_id, coalesce(NEW.decided_at, NEW.created_at),
            greatest(NEW.effective_at, clock_timestamp()), jsonb_build_object(
                'approval', NEW.id, 'run', NEW.run_id, 'agent', NEW.path ->> 0, 'status', NEW.status,
                'kind', NEW.kind, 'tool', NEW.tool, 'risk', NEW.risk, 'title', NEW.sentence,
                'arguments', arguments));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER approvals_approval_requested AFTER INSERT ON approvals_approval
    FOR EACH ROW EXECUTE FUNCTION approvals_approval_tell();
CREATE OR REPLACE TRIGGER approvals_approval_closed AFTER UPDATE OF status ON approvals_approval
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION approvals_approval_tell();

CREATE OR REPLACE FUNCTION approvals_run_tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM signoff_tell('run.' || CASE WHEN TG_OP = 'INSERT' THEN 'started'
            WHEN NEW.status = 'suspended' THEN 'waiting' ELSE NEW.status END,
        NEW.id, coalesce(NEW.ended_at, clock_timestamp()), clock_timestamp(), jsonb_build_object(
            'run', NEW.id, 'agent', NEW.agent, 'status', NEW.status));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER approvals_run_started AFTER INSERT ON runtime_run
    FOR EACH ROW WHEN (NEW.ended_at IS NULL) EXECUTE FUNCTION approvals_run_tell();
CREATE OR REPLACE TRIGGER approvals_run_changed AFTER UPDATE OF status ON runtime_run
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status
        AND NEW.status IN ('waiting', 'suspended', 'completed', 'failed', 'cancelled', 'quarantined'))
    EXECUTE FUNCTION approvals_run_tell();
"""

UPDATES = """
CREATE FUNCTION approvals_approval_update_slack() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO approvals_outboxmessage
        (id, kind, destination, lane, subject, body, occurred_at, next_at, gives_up_at)
    SELECT gen_random_uuid(), 'slack.update', destination, lane, subject, body,
        clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day'
    FROM approvals_outboxmessage WHERE destination = 'slack ' || NEW.id AND kind = 'slack.post';
    RETURN NULL;
END $$;
CREATE TRIGGER approvals_approval_slack AFTER UPDATE ON approvals_approval FOR EACH ROW
    WHEN ((OLD.status, OLD.voted, OLD.expires_at) IS DISTINCT FROM (NEW.status, NEW.voted, NEW.expires_at))
    EXECUTE FUNCTION approvals_approval_update_slack();
"""

KEY: dict[str, Any] = {"primary_key": True, "serialize": False}
ID = ("id", models.UUIDField(default=uuid.uuid4, **KEY))
NUMBER = ("id", models.BigAutoField(auto_created=True, verbose_name="ID", **KEY))
SIGNED = [("signature", models.TextField()), ("key_id", models.TextField())]
PERSON: dict[str, Any] = {"on_delete": models.PROTECT, "to": settings.AUTH_USER_MODEL}
RUN: dict[str, Any] = {"on_delete": models.PROTECT, "to": "runtime.run", "db_constraint": False}
APPROVAL: dict[str, Any] = {"on_delete": models.PROTECT, "to": "approvals.approval"}
PENDING, DECIDED = models.Q(status="pending"), models.Q(decided_at__isnull=False)
OPEN = models.Q(ended_at__isnull=True)
DECISION = ("decided_at", "decided_by", "key_id", "reason", "signature", "statement")


def columns(names: str, kind: type[Any], **options: Any) -> list[Any]:
    """Return a column of this kind for each name."""
    return [(name, kind(**options)) for name in names.split()]


def index(name: str, columns: str, condition: models.Q | None = None) -> models.Index:
    """Return an index of these columns."""
    return models.Index(fields=columns.split(), condition=condition, name=name)


def unique(name: str, columns: str, condition: models.Q | None = None) -> models.UniqueConstraint:
    """Return the rule that no two rows have the same values in these columns."""
    return models.UniqueConstraint(fields=columns.split(), condition=condition, name=name)


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("runtime", "0001_first_release"),
    ]
    replaces = [
        ("approvals", name)
        for name in (
            *("0001_initial", "0002_daily_counts", "0003_instances", "0004_outbox"),
            *("0002_people", "0003_pending_own"),
        )
    ]

    operations = [
        migrations.CreateModel(
            "Absence",
            [
                NUMBER,
                ("username", models.TextField()),
                ("seq", models.IntegerField()),
                *columns("act deputy", models.TextField),
                *columns("starts ends", models.DateTimeField),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                *SIGNED,
            ],
            {
                "indexes": [index("absence_deputy", "deputy")],
                "constraints": [unique("absence_order", "username seq")],
            },
        ),
        migrations.CreateModel(
            "Token",
            [
                ("public_id", models.TextField(**KEY)),
                ("owner", models.ForeignKey(related_name="tokens", **PERSON)),
                ("secret_hash", models.TextField()),
                ("scopes", models.JSONField()),
                ("name", models.TextField(default="", db_default="")),
                ("created_at", models.DateTimeField()),
                *columns("expires_at last_used_at revoked_at", models.DateTimeField, null=True),
                *SIGNED,
            ],
        ),
        migrations.CreateModel(
            "Assignment",
            [
                NUMBER,
                ("person", models.ForeignKey(related_name="assignments", **PERSON)),
                *columns("username what", models.TextField),
                ("seq", models.IntegerField()),
                ("act", models.TextField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("givers", models.JSONField()),
                ("given_at", models.DateTimeField()),
                ("needs_second", models.BooleanField()),
                ("confirmed_by", models.TextField(null=True)),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("digest", models.TextField(null=True)),
                *SIGNED,
            ],
            {
                "indexes": [
                    GinIndex(
                        fields=["givers"],
                        condition=models.Q(confirmed_at__isnull=True, what="password"),
                        name="assignment_givers",
                    )
                ],
                "constraints": [unique("assignment_order", "person what seq")],
            },
        ),
        migrations.CreateModel(
            "PasswordLink",
            [
                ("public_id", models.TextField(**KEY)),
                ("person", models.ForeignKey(related_name="password_links", **PERSON)),
                ("secret_hash", models.TextField()),
                ("by", models.TextField(null=True)),
                *columns("created_at expires_at", models.DateTimeField),
                ("ended_at", models.DateTimeField(null=True)),
                *SIGNED,
            ],
        ),
        migrations.CreateModel(
            "LoginFailures",
            [
                NUMBER,
                *columns("address username", models.TextField),
                ("failures", models.IntegerField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            {"constraints": [unique("login_failures", "address username")]},
        ),
        migrations.CreateModel(
            "TimePreference",
            [
                ("person", models.OneToOneField(related_name="time_preference", **PERSON, **KEY)),
                *columns("zone clock", models.TextField),
            ],
        ),
        migrations.CreateModel(
            "SavedView",
            [
                ID,
                ("owner", models.ForeignKey(related_name="saved_views", **PERSON)),
                ("name", models.TextField()),
                ("page", models.TextField(default="inbox", db_default="inbox")),
                ("place", models.JSONField()),
            ],
            {"constraints": [unique("saved_view_name", "owner name")]},
        ),
        migrations.CreateModel(
            "AllowanceAct",
            [
                NUMBER,
                ("allowance", models.UUIDField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField()),
                ("tool", models.TextField(default="", db_default="")),
                ("ends_at", models.DateTimeField(null=True)),
                ("terms", models.TextField(default="", db_default="")),
                *columns("proposed_by by", models.TextField, null=True),
                ("at", models.DateTimeField()),
                ("reason", models.TextField(default="", db_default="")),
                ("run", models.UUIDField(null=True)),
                *columns("frame call", models.TextField, null=True),
                ("approval", models.UUIDField(null=True)),
                *columns("signature key_id", models.TextField, default="", db_default=""),
            ],
            {
                "indexes": [index("allowance_tool", "tool ends_at", models.Q(act="confirmed"))],
                "constraints": [
                    unique("allowance_order", "allowance seq"),
                    unique("allowance_used_once", "run frame call", models.Q(act="used")),
                ],
            },
        ),
        migrations.CreateModel(
            "AuditEntry",
            [
                NUMBER,
                ("run", models.ForeignKey(related_name="audit", db_index=False, **RUN)),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                *columns("actor token", models.TextField, null=True),
                *columns("act subject detail hash key_id", models.TextField),
            ],
            {"constraints": [unique("audit_order", "run seq")]},
        ),
        migrations.CreateModel(
            "AuditHead",
            [
                ("run_id", models.UUIDField(**KEY)),
                ("seq", models.BigIntegerField()),
                *columns("mac key_id", models.TextField),
            ],
        ),
        migrations.CreateModel(
            "PolicyAct",
            [
                ("seq", models.IntegerField(**KEY)),
                ("act", models.TextField()),
                ("number", models.IntegerField()),
                ("text", models.TextField(default="")),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                *SIGNED,
            ],
        ),
        migrations.CreateModel(
            "PromptAct",
            [
                NUMBER,
                ("name", models.TextField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField()),
                ("number", models.IntegerField()),
                *columns("text note label", models.TextField, default=""),
                *columns("by token", models.TextField, null=True),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                *SIGNED,
            ],
            {"constraints": [unique("prompt_act_once", "name seq")]},
        ),
        migrations.CreateModel(
            "Approval",
            [
                ("id", models.UUIDField(**KEY)),
                ("run", models.ForeignKey(related_name="approvals", **RUN)),
                ("gate", models.UUIDField(unique=True)),
                *columns("kind frame call tool args schema", models.TextField),
                *columns("result_schema preview", models.TextField, null=True),
                ("path", models.JSONField()),
                *columns(
                    "effect risk sentence action_digest nonce policy_version requester",
                    models.TextField,
                ),
                *columns("origin excluded", models.JSONField, db_default=[]),
                *columns("approval_digest seal seal_key_id", models.TextField),
                ("status", models.TextField(default="pending")),
                ("created_at", models.DateTimeField()),
                *columns("expires_at first_expires_at", models.DateTimeField, null=True),
                ("extensions", models.TextField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("decided_by", models.TextField(null=True)),
                *columns("decided_at effective_at", models.DateTimeField, null=True),
                *columns(
                    "reason statement signature key_id edited edited_preview",
                    models.TextField,
                    null=True,
                ),
                ("removed_at", models.DateTimeField(null=True)),
                *columns("channel rule decided_for", models.TextField, null=True),
                *columns("voted voted_for", models.JSONField, db_default=[]),
                *columns("open_to readers", models.JSONField, null=True),
                ("revises", models.UUIDField(null=True)),
                ("revision", models.SmallIntegerField(db_default=1)),
                ("allowance", models.UUIDField(null=True)),
                ("allowance_use", models.IntegerField(null=True)),
                ("next_step", models.TextField(default="", db_default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("escalated", models.SmallIntegerField(default=0, db_default=0)),
                ("undecidable_at", models.DateTimeField(null=True)),
            ],
            {
                "indexes": [
                    index("approval_order", "created_at id"),
                    index("approval_pending", "created_at id", PENDING),
                    index("approval_deadline", "expires_at created_at id", PENDING),
                    index(
                        "approval_high_risk",
                        "expires_at created_at id",
                        models.Q(risk="high", status="pending"),
                    ),
                    index("approval_decided", "-decided_at -id", DECIDED),
                    index("approval_history_person", "decided_by -decided_at -id", DECIDED),
                    index("approval_history_by", "requester -decided_at -id", DECIDED),
                    index("approval_history_tool", "tool -decided_at -id", DECIDED),
                    index(
                        "approval_history_deputy",
                        "decided_for -decided_at -id",
                        models.Q(decided_at__isnull=False, decided_for__isnull=False),
                    ),
                    index(
                        "approval_history_votes",
                        "-decided_at -id",
                        models.Q(("decided_at__isnull", False), ~models.Q(voted=[])),
                    ),
                    models.Index(
                        models.Func(
                            models.F("path"),
                            template="(%(expressions)s ->> 0)",
                            output_field=models.TextField(),
                        ),
                        models.F("decided_at").desc(),
                        models.F("id").desc(),
                        condition=DECIDED,
                        name="approval_history_root",
                    ),
                    models.Index(
                        models.Func(
                            models.F("path"),
                            models.F("tool"),
                            arg_joiner=" ->> CASE WHEN ",
                            template="(%(expressions)s = '' THEN -1 ELSE -2 END)",
                            output_field=models.TextField(),
                        ),
                        models.F("decided_at").desc(),
                        models.F("id").desc(),
                        condition=DECIDED,
                        name="approval_history_agent",
                    ),
                    index(
                        "approval_doubt",
                        "created_at id",
                        models.Q(kind="in_doubt", status="pending"),
                    ),
                    index(
                        "approval_ruled",
                        "created_at id",
                        models.Q(open_to__isnull=False, status="pending"),
                    ),
                    index(
                        "approval_escalates",
                        "next_at",
                        models.Q(next_step="escalate", status="pending"),
                    ),
                    index(
                        "approval_undecidable",
                        "undecidable_at",
                        models.Q(status="pending", undecidable_at__isnull=False),
                    ),
                    index("approval_own_pending", "requester", PENDING),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(risk__in=["low", "medium", "high"]), name="approval_risk"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(status="pending", **dict.fromkeys(DECISION))
                        | models.Q(
                            status__in=["approved", "denied", "answered"],
                            **dict.fromkeys((f"{name}__isnull" for name in DECISION), False),
                        )
                        | models.Q(
                            status__in=["expired", "cancelled"],
                            **dict.fromkeys(("decided_at__isnull", "reason__isnull"), False),
                            **dict.fromkeys(("key_id", "signature", "statement")),
                        ),
                        name="approval_decided_by_somebody",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            "ApprovalOutcome",
            [
                (
                    "approval",
                    models.OneToOneField(
                        related_name="outcome", db_constraint=False, **APPROVAL, **KEY
                    ),
                ),
                ("run_id", models.UUIDField()),
                *columns("frame call outcome", models.TextField),
                ("position", models.BigIntegerField()),
                ("decided_at", models.DateTimeField()),
            ],
            {
                "indexes": [
                    index("approval_outcome_history", "outcome -decided_at -approval"),
                    index("approval_outcome_in_doubt", "run_id", models.Q(outcome="in_doubt")),
                ]
            },
        ),
        migrations.CreateModel(
            "ReviewTime",
            [
                NUMBER,
                ("approval", models.ForeignKey(related_name="readings", **APPROVAL)),
                ("person", models.TextField()),
                ("first_seen_at", models.DateTimeField(null=True)),
                ("opened_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                *columns("visible_ms reading_ms", models.IntegerField),
                ("sections", models.JSONField()),
                ("considered", models.BooleanField()),
                ("channel", models.TextField()),
                ("edits", models.IntegerField()),
                ("undone", models.IntegerField(db_default=0)),
            ],
            {
                "indexes": [index("review_time_decided", "-decided_at", DECIDED)],
                "constraints": [unique("review_time_once", "approval person")],
            },
        ),
        migrations.CreateModel(
            "Comment",
            [
                ID,
                ("approval", models.ForeignKey(related_name="comments", **APPROVAL)),
                *columns("person text", models.TextField),
                ("at", models.DateTimeField()),
                *SIGNED,
            ],
        ),
        migrations.CreateModel(
            "ApprovalClaim",
            [
                ("approval", models.OneToOneField(related_name="claim", **APPROVAL, **KEY)),
                ("person", models.TextField()),
                *columns("at until", models.DateTimeField),
            ],
        ),
        migrations.CreateModel(
            "Handover",
            [
                ("approval", models.OneToOneField(related_name="handover", **APPROVAL, **KEY)),
                *columns("person by note", models.TextField),
                ("at", models.DateTimeField()),
                *SIGNED,
            ],
            {"indexes": [index("handover_person", "person")]},
        ),
        migrations.CreateModel(
            "ApprovalViewer",
            [
                NUMBER,
                ("approval", models.ForeignKey(related_name="viewers", **APPROVAL)),
                ("person", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            {"constraints": [unique("approval_viewer_once", "approval person")]},
        ),
        migrations.CreateModel(
            "ToolSchema", [("digest", models.TextField(**KEY)), ("body", models.TextField())]
        ),
        migrations.CreateModel(
            "VersionDecision",
            [
                NUMBER,
                *columns("agent before after by", models.TextField),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("count", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("withdrawn", models.IntegerField(default=0, db_default=0)),
                *SIGNED,
            ],
            {"indexes": [index("version_decision_pair", "agent before after -id")]},
        ),
        migrations.CreateModel(
            "VersionWithdrawal",
            [
                NUMBER,
                *columns("agent before after by", models.TextField),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                *SIGNED,
            ],
            {"indexes": [index("version_withdrawal_pair", "agent before after")]},
        ),
        migrations.CreateModel(
            "DailyDecisions",
            [
                ("day", models.DateField(**KEY)),
                ("verdicts", models.JSONField()),
                *columns("median p90", models.FloatField, null=True),
            ],
        ),
        migrations.CreateModel(
            "Instance",
            [
                *SIGNED,
                ID,
                *columns("name secret_hash", models.TextField),
                ("created_at", models.DateTimeField()),
                *columns("idempotency_key fingerprint", models.TextField),
                ("sealed", models.JSONField(null=True)),
                ("updates", models.JSONField(db_default={})),
                *columns("deleted_at last_request_at", models.DateTimeField, null=True),
                ("framework", models.TextField(db_default="")),
                ("owner", models.ForeignKey(related_name="instances", **PERSON)),
            ],
            {"constraints": [unique("instance_key", "owner idempotency_key")]},
        ),
        migrations.CreateModel(
            "ApprovalUse",
            [
                ("run", models.UUIDField(**KEY)),
                ("idempotency_key", models.TextField()),
                ("used_at", models.DateTimeField()),
                *columns("outcome note", models.TextField, null=True),
                ("reported_at", models.DateTimeField(null=True)),
                (
                    "instance",
                    models.ForeignKey("approvals.instance", models.PROTECT, related_name="uses"),
                ),
            ],
        ),
        migrations.CreateModel(
            "InstanceWebhook",
            [
                (
                    "instance",
                    models.OneToOneField(
                        "approvals.instance", models.PROTECT, related_name="webhook", **KEY
                    ),
                ),
                *columns("url registration_id", models.TextField),
                ("secret", models.JSONField()),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            "SecondFactor",
            [
                *SIGNED,
                ID,
                *columns("kind name", models.TextField),
                ("secret", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("counter", models.BigIntegerField(default=0)),
                *columns("used_at ended_at", models.DateTimeField, null=True),
                ("person", models.ForeignKey(related_name="second_factors", **PERSON)),
            ],
        ),
        migrations.CreateModel(
            "Vote",
            [
                NUMBER,
                ("approval", models.ForeignKey(related_name="votes", **APPROVAL)),
                ("person", models.TextField()),
                ("for_person", models.TextField(null=True)),
                ("stage", models.IntegerField()),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("verdict", models.TextField()),
                *SIGNED,
                ("authenticated", models.JSONField(null=True)),
            ],
            {"constraints": [unique("vote_once", "approval person")]},
        ),
        migrations.CreateModel(
            "NoticeChannel",
            [
                ID,
                ("person", models.ForeignKey(related_name="channels", **PERSON)),
                ("kind", models.TextField()),
                ("address", models.JSONField()),
                ("from_risk", models.TextField(default="", db_default="")),
                ("runs", models.BooleanField(default=False, db_default=False)),
                ("shows", models.TextField(default="title", db_default="title")),
                ("since", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(default="", db_default="")),
            ],
        ),
        migrations.CreateModel(
            "NoticeTimes",
            [
                ("person", models.OneToOneField(related_name="notice_times", **PERSON, **KEY)),
                ("zone", models.TextField()),
                *columns("quiet_from quiet_until", models.TimeField, null=True),
                ("urgent_at_night", models.BooleanField(default=False, db_default=False)),
                ("digest", ArrayField(models.SmallIntegerField(), default=list, db_default=[])),
            ],
        ),
        migrations.CreateModel(
            "SentNotice",
            [
                NUMBER,
                (
                    "channel",
                    models.ForeignKey(
                        "approvals.noticechannel", models.CASCADE, related_name="sent_notices"
                    ),
                ),
                ("about", models.UUIDField()),
                ("event", models.TextField(default="", db_default="")),
                ("at", models.DateTimeField()),
                ("message", models.UUIDField()),
            ],
            {
                "indexes": [index("sent_notice_at", "channel at")],
                "constraints": [unique("sent_notice_once", "channel about event")],
            },
        ),
        migrations.CreateModel(
            "Subscription",
            [
                ID,
                *columns("name url", models.TextField),
                ("events", ArrayField(models.TextField())),
                *columns("agent tool risk", models.TextField, default="", db_default=""),
                ("secret", models.JSONField()),
                ("former_secret", models.JSONField(null=True)),
                ("former_until", models.DateTimeField(null=True)),
                ("created_by", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("paused_at", models.DateTimeField(null=True)),
                ("with_arguments", models.BooleanField(default=False, db_default=False)),
            ],
        ),
        migrations.CreateModel(
            "OutboxMessage",
            [
                ("number", models.BigAutoField(**KEY)),
                ("id", models.UUIDField(default=uuid.uuid4, unique=True)),
                *columns("kind destination lane subject", models.TextField),
                ("body", models.TextField(null=True)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("next_at", models.DateTimeField()),
                *columns("gives_up_at leased_until", models.DateTimeField, null=True),
                ("attempts", models.IntegerField(default=0, db_default=0)),
                ("answer", models.TextField(default="", db_default="")),
                ("ended_at", models.DateTimeField(null=True)),
                ("ending", models.TextField(null=True)),
                ("answer_body", models.TextField(default="", db_default="")),
            ],
            {
                "indexes": [
                    index("outbox_lane", "lane next_at", OPEN),
                    index("outbox_subject", "subject number", OPEN),
                    index(
                        "outbox_leased",
                        "lane leased_until",
                        models.Q(ended_at__isnull=True, leased_until__isnull=False),
                    ),
                    index("outbox_destination", "destination -number"),
                    index("outbox_ended", "ended_at", models.Q(ended_at__isnull=False)),
                ]
            },
        ),
        migrations.CreateModel(
            "DirectoryToken",
            [
                *SIGNED,
                ("public_id", models.TextField(**KEY)),
                *columns("directory secret_hash", models.TextField),
                ("by", models.TextField(null=True)),
                *columns("created_at expires_at", models.DateTimeField),
                *columns("last_used_at revoked_at", models.DateTimeField, null=True),
            ],
        ),
        migrations.CreateModel(
            "DirectoryEntry",
            [
                *SIGNED,
                ID,
                *columns("directory kind name external_id", models.TextField),
                ("version", models.IntegerField()),
                ("attributes", models.JSONField()),
                *columns("created_at changed_at", models.DateTimeField),
                ("person", models.OneToOneField(null=True, related_name="entry", **PERSON)),
            ],
            {
                "constraints": [
                    models.UniqueConstraint(
                        models.F("directory"),
                        models.F("kind"),
                        Lower("name"),
                        name="directory_name",
                    ),
                    unique(
                        "directory_external_id",
                        "directory kind external_id",
                        ~models.Q(external_id=""),
                    ),
                ]
            },
        ),
        migrations.CreateModel(
            "MappingAct",
            [
                NUMBER,
                *SIGNED,
                ("seq", models.IntegerField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                *columns("source act value gives", models.TextField),
            ],
            {"constraints": [unique("mapping_act_once", "source seq")]},
        ),
        migrations.CreateModel(
            "SlackRequest",
            [("digest", models.TextField(**KEY)), ("at", models.DateTimeField(db_index=True))],
        ),
        *(
            migrations.RunSQL(sql)
            for sql in (
                APPEND_ONLY,
                COMMENTS,
                NO_AUDIT_KEY,
                EXCLUDED,
                STATISTICS,
                GROUPS,
                END_ONCE,
                EVENTS,
                NOTICES,
                UPDATES,
            )
        ),
    ]
