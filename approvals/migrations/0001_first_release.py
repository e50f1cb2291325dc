"""The tables of approvals, and the triggers that refuse changes of signed rows."""

import uuid

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

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

TOKENS = """
CREATE FUNCTION approvals_token_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.public_id, NEW.owner_id, NEW.secret_hash, NEW.scopes, NEW.created_at, NEW.name, NEW.expires_at)
        IS DISTINCT FROM (OLD.public_id, OLD.owner_id, OLD.secret_hash, OLD.scopes, OLD.created_at, OLD.name,
            OLD.expires_at) THEN
        RAISE EXCEPTION 'tokens are revoked, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at THEN
        RAISE EXCEPTION 'revoked tokens stay revoked' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_token_stays_revoked
    BEFORE UPDATE OR DELETE ON approvals_token
    FOR EACH ROW EXECUTE FUNCTION approvals_token_keep();
"""

LINKS_END_ONCE = """
CREATE FUNCTION approvals_passwordlink_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.public_id, NEW.person_id, NEW.secret_hash, NEW."by", NEW.created_at, NEW.expires_at)
        IS DISTINCT FROM (OLD.public_id, OLD.person_id, OLD.secret_hash, OLD."by", OLD.created_at, OLD.expires_at)
        OR (OLD.ended_at IS NOT NULL AND NEW.ended_at IS DISTINCT FROM OLD.ended_at) THEN
        RAISE EXCEPTION 'password links end once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_passwordlink_ends_once
    BEFORE UPDATE OR DELETE ON approvals_passwordlink
    FOR EACH ROW EXECUTE FUNCTION approvals_passwordlink_keep();
"""

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


INSTANCES = """
CREATE FUNCTION approvals_instance_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.id, NEW.owner_id, NEW.secret_hash, NEW.created_at, NEW.idempotency_key)
        IS DISTINCT FROM (OLD.id, OLD.owner_id, OLD.secret_hash, OLD.created_at, OLD.idempotency_key) THEN
        RAISE EXCEPTION 'instances are ended, not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS DISTINCT FROM OLD.deleted_at THEN
        RAISE EXCEPTION 'ended instances stay ended' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_instance_stays_ended
    BEFORE UPDATE OR DELETE ON approvals_instance
    FOR EACH ROW EXECUTE FUNCTION approvals_instance_keep();
"""

USES = """
CREATE FUNCTION approvals_approvaluse_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.run, NEW.instance_id, NEW.idempotency_key, NEW.used_at)
        IS DISTINCT FROM (OLD.run, OLD.instance_id, OLD.idempotency_key, OLD.used_at) THEN
        RAISE EXCEPTION 'uses of approvals are not changed or deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF OLD.outcome IS NOT NULL AND (NEW.outcome, NEW.reported_at)
        IS DISTINCT FROM (OLD.outcome, OLD.reported_at) THEN
        RAISE EXCEPTION 'outcomes are reported once' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER approvals_approvaluse_once
    BEFORE UPDATE OR DELETE ON approvals_approvaluse
    FOR EACH ROW EXECUTE FUNCTION approvals_approvaluse_keep();
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("auth", "__first__"),
        ("runtime", "0001_first_release"),
    ]
    replaces = [
        ("approvals", "0001_initial"),
        ("approvals", "0002_daily_counts"),
        ("approvals", "0003_instances"),
        ("approvals", "0004_outbox"),
    ]

    operations = [
        migrations.CreateModel(
            name="Absence",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("username", models.TextField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField(choices=[("set", "Set"), ("ended", "Ended")])),
                ("deputy", models.TextField()),
                ("starts", models.DateTimeField()),
                ("ends", models.DateTimeField()),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [models.Index(fields=["deputy"], name="absence_deputy")],
                "constraints": [
                    models.UniqueConstraint(fields=("username", "seq"), name="absence_order")
                ],
            },
        ),
        migrations.CreateModel(
            name="Token",
            fields=[
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("secret_hash", models.TextField()),
                ("scopes", models.JSONField()),
                ("name", models.TextField(db_default="", default="")),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="Assignment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="assignments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("username", models.TextField()),
                ("what", models.TextField()),
                ("seq", models.IntegerField()),
                (
                    "act",
                    models.TextField(
                        choices=[
                            ("given", "Given"),
                            ("confirmed", "Confirmed"),
                            ("changed", "Changed"),
                            ("ended", "Ended"),
                        ]
                    ),
                ),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("givers", models.JSONField()),
                ("given_at", models.DateTimeField()),
                ("needs_second", models.BooleanField()),
                ("confirmed_by", models.TextField(null=True)),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("digest", models.TextField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        condition=models.Q(("confirmed_at__isnull", True), ("what", "password")),
                        fields=["givers"],
                        name="assignment_givers",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("person", "what", "seq"), name="assignment_order"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PasswordLink",
            fields=[
                ("public_id", models.TextField(primary_key=True, serialize=False)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="password_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("secret_hash", models.TextField()),
                ("by", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="LoginFailures",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("address", models.TextField()),
                ("username", models.TextField()),
                ("failures", models.IntegerField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("address", "username"), name="login_failures")
                ],
            },
        ),
        migrations.CreateModel(
            name="TimePreference",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="time_preference",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("zone", models.TextField()),
                ("clock", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("name", models.TextField()),
                ("page", models.TextField(db_default="inbox", default="inbox")),
                ("place", models.JSONField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("owner", "name"), name="saved_view_name")
                ],
            },
        ),
        migrations.CreateModel(
            name="AllowanceAct",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("allowance", models.UUIDField()),
                ("seq", models.IntegerField()),
                (
                    "act",
                    models.TextField(
                        choices=[
                            ("proposed", "Proposed"),
                            ("confirmed", "Confirmed"),
                            ("used", "Used"),
                            ("revoked", "Revoked"),
                        ]
                    ),
                ),
                ("tool", models.TextField(db_default="", default="")),
                ("ends_at", models.DateTimeField(null=True)),
                ("terms", models.TextField(db_default="", default="")),
                ("proposed_by", models.TextField(null=True)),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("reason", models.TextField(db_default="", default="")),
                ("run", models.UUIDField(null=True)),
                ("frame", models.TextField(null=True)),
                ("call", models.TextField(null=True)),
                ("approval", models.UUIDField(null=True)),
                ("signature", models.TextField(db_default="", default="")),
                ("key_id", models.TextField(db_default="", default="")),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("act", "confirmed")),
                        fields=["tool", "ends_at"],
                        name="allowance_tool",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("allowance", "seq"), name="allowance_order"),
                    models.UniqueConstraint(
                        condition=models.Q(("act", "used")),
                        fields=("run", "frame", "call"),
                        name="allowance_used_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="audit",
                        to="runtime.run",
                    ),
                ),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("actor", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("act", models.TextField()),
                ("subject", models.TextField()),
                ("detail", models.TextField()),
                ("hash", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("run", "seq"), name="audit_order")],
            },
        ),
        migrations.CreateModel(
            name="AuditHead",
            fields=[
                ("run_id", models.UUIDField(primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="MailPreference",
            fields=[
                (
                    "person",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="mail_preference",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("address", models.TextField()),
                (
                    "about",
                    models.TextField(choices=[("off", "Off"), ("all", "All"), ("high", "High")]),
                ),
                ("runs", models.BooleanField(db_default=False)),
                ("since", models.DateTimeField()),
                ("confirmed_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(default="")),
                ("retry_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="SentMail",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("about", models.UUIDField()),
                ("person", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("person", "about"), name="sent_mail_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="PolicyAct",
            fields=[
                ("seq", models.IntegerField(primary_key=True, serialize=False)),
                (
                    "act",
                    models.TextField(
                        choices=[
                            ("proposed", "Proposed"),
                            ("scheduled", "Scheduled"),
                            ("confirmed", "Confirmed"),
                            ("withdrawn", "Withdrawn"),
                        ]
                    ),
                ),
                ("number", models.IntegerField()),
                ("text", models.TextField(default="")),
                ("by", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="PromptAct",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.TextField()),
                ("seq", models.IntegerField()),
                (
                    "act",
                    models.TextField(
                        choices=[
                            ("saved", "Saved"),
                            ("labelled", "Labelled"),
                            ("proposed", "Proposed"),
                            ("scheduled", "Scheduled"),
                            ("confirmed", "Confirmed"),
                            ("withdrawn", "Withdrawn"),
                        ]
                    ),
                ),
                ("number", models.IntegerField()),
                ("text", models.TextField(default="")),
                ("note", models.TextField(default="")),
                ("label", models.TextField(default="")),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("effective_at", models.DateTimeField(null=True)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name", "seq"), name="prompt_act_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Approval",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="approvals",
                        to="runtime.run",
                    ),
                ),
                ("gate", models.UUIDField(unique=True)),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("approval", "approval"),
                            ("question", "question"),
                            ("in_doubt", "in_doubt"),
                            ("hold", "hold"),
                            ("limit", "limit"),
                            ("version", "version"),
                        ]
                    ),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("tool", models.TextField()),
                ("args", models.TextField()),
                ("schema", models.TextField()),
                ("result_schema", models.TextField(null=True)),
                ("preview", models.TextField(null=True)),
                ("path", models.JSONField()),
                ("effect", models.TextField()),
                ("risk", models.TextField()),
                ("sentence", models.TextField()),
                ("action_digest", models.TextField()),
                ("nonce", models.TextField()),
                ("policy_version", models.TextField()),
                ("requester", models.TextField()),
                ("origin", models.JSONField(db_default=[])),
                ("excluded", models.JSONField(db_default=[])),
                ("approval_digest", models.TextField()),
                ("seal", models.TextField()),
                ("seal_key_id", models.TextField()),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("pending", "Pending"),
                            ("approved", "Approved"),
                            ("denied", "Denied"),
                            ("answered", "Answered"),
                            ("expired", "Expired"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                    ),
                ),
                ("created_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField(null=True)),
                ("first_expires_at", models.DateTimeField(null=True)),
                ("extensions", models.TextField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                ("decided_by", models.TextField(null=True)),
                ("decided_at", models.DateTimeField(null=True)),
                ("effective_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(null=True)),
                ("statement", models.TextField(null=True)),
                ("signature", models.TextField(null=True)),
                ("key_id", models.TextField(null=True)),
                ("edited", models.TextField(null=True)),
                ("edited_preview", models.TextField(null=True)),
                ("removed_at", models.DateTimeField(null=True)),
                ("channel", models.TextField(null=True)),
                ("rule", models.TextField(null=True)),
                ("decided_for", models.TextField(null=True)),
                ("voted", models.JSONField(db_default=[])),
                ("voted_for", models.JSONField(db_default=[])),
                ("open_to", models.JSONField(null=True)),
                ("readers", models.JSONField(null=True)),
                ("revises", models.UUIDField(null=True)),
                ("revision", models.SmallIntegerField(db_default=1)),
                ("allowance", models.UUIDField(null=True)),
                ("allowance_use", models.IntegerField(null=True)),
                ("next_step", models.TextField(db_default="", default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("escalated", models.SmallIntegerField(db_default=0, default=0)),
                ("undecidable_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["created_at", "id"], name="approval_order"),
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["created_at", "id"],
                        name="approval_pending",
                    ),
                    models.Index(
                        condition=models.Q(("status", "pending")),
                        fields=["expires_at", "created_at", "id"],
                        name="approval_deadline",
                    ),
                    models.Index(
                        condition=models.Q(("risk", "high"), ("status", "pending")),
                        fields=["expires_at", "created_at", "id"],
                        name="approval_high_risk",
                    ),
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["-decided_at", "-id"],
                        name="approval_decided",
                    ),
                    models.Index(fields=["requester", "status"], name="approval_own"),
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["decided_by", "-decided_at", "-id"],
                        name="approval_history_person",
                    ),
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["requester", "-decided_at", "-id"],
                        name="approval_history_by",
                    ),
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["tool", "-decided_at", "-id"],
                        name="approval_history_tool",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("decided_at__isnull", False), ("decided_for__isnull", False)
                        ),
                        fields=["decided_for", "-decided_at", "-id"],
                        name="approval_history_deputy",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("decided_at__isnull", False), models.Q(("voted", []), _negated=True)
                        ),
                        fields=["-decided_at", "-id"],
                        name="approval_history_votes",
                    ),
                    models.Index(
                        models.Func(
                            models.F("path"),
                            output_field=models.TextField(),
                            template="(%(expressions)s ->> 0)",
                        ),
                        models.OrderBy(models.F("decided_at"), descending=True),
                        models.OrderBy(models.F("id"), descending=True),
                        condition=models.Q(("decided_at__isnull", False)),
                        name="approval_history_root",
                    ),
                    models.Index(
                        models.Func(
                            models.F("path"),
                            models.F("tool"),
                            arg_joiner=" ->> CASE WHEN ",
                            output_field=models.TextField(),
                            template="(%(expressions)s = '' THEN -1 ELSE -2 END)",
                        ),
                        models.OrderBy(models.F("decided_at"), descending=True),
                        models.OrderBy(models.F("id"), descending=True),
                        condition=models.Q(("decided_at__isnull", False)),
                        name="approval_history_agent",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "in_doubt"), ("status", "pending")),
                        fields=["created_at", "id"],
                        name="approval_doubt",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "approval"), ("status", "approved")),
                        fields=["tool", "-decided_at"],
                        name="approval_similar",
                    ),
                    models.Index(
                        condition=models.Q(("open_to__isnull", False), ("status", "pending")),
                        fields=["created_at", "id"],
                        name="approval_ruled",
                    ),
                    models.Index(
                        condition=models.Q(("next_step", "escalate"), ("status", "pending")),
                        fields=["next_at"],
                        name="approval_escalates",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("status", "pending"), ("undecidable_at__isnull", False)
                        ),
                        fields=["undecidable_at"],
                        name="approval_undecidable",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("risk__in", ["low", "medium", "high"])),
                        name="approval_risk",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("decided_at", None),
                                ("decided_by", None),
                                ("key_id", None),
                                ("reason", None),
                                ("signature", None),
                                ("statement", None),
                                ("status", "pending"),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("decided_by__isnull", False),
                                ("key_id__isnull", False),
                                ("reason__isnull", False),
                                ("signature__isnull", False),
                                ("statement__isnull", False),
                                ("status__in", ["approved", "denied", "answered"]),
                            ),
                            models.Q(
                                ("decided_at__isnull", False),
                                ("key_id", None),
                                ("reason__isnull", False),
                                ("signature", None),
                                ("statement", None),
                                ("status__in", ["expired", "cancelled"]),
                            ),
                            _connector="OR",
                        ),
                        name="approval_decided_by_somebody",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApprovalOutcome",
            fields=[
                (
                    "approval",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="outcome",
                        serialize=False,
                        to="approvals.approval",
                    ),
                ),
                ("run_id", models.UUIDField()),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("outcome", models.TextField()),
                ("position", models.BigIntegerField()),
                ("decided_at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["outcome", "-decided_at", "-approval"],
                        name="approval_outcome_history",
                    ),
                    models.Index(
                        condition=models.Q(("outcome", "in_doubt")),
                        fields=["run_id"],
                        name="approval_outcome_in_doubt",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Vote",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="votes",
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("for_person", models.TextField(null=True)),
                ("stage", models.IntegerField()),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("verdict", models.TextField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("approval", "person"), name="vote_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ReviewTime",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="readings",
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("first_seen_at", models.DateTimeField(null=True)),
                ("opened_at", models.DateTimeField()),
                ("decided_at", models.DateTimeField(null=True)),
                ("visible_ms", models.IntegerField()),
                ("reading_ms", models.IntegerField()),
                ("sections", models.JSONField()),
                ("considered", models.BooleanField()),
                ("channel", models.TextField()),
                ("edits", models.IntegerField()),
                ("undone", models.IntegerField(db_default=0)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("decided_at__isnull", False)),
                        fields=["-decided_at"],
                        name="review_time_decided",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("approval", "person"), name="review_time_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Comment",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="comments",
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("text", models.TextField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="ApprovalClaim",
            fields=[
                (
                    "approval",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="claim",
                        serialize=False,
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("at", models.DateTimeField()),
                ("until", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="Handover",
            fields=[
                (
                    "approval",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="handover",
                        serialize=False,
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("by", models.TextField()),
                ("note", models.TextField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [models.Index(fields=["person"], name="handover_person")],
            },
        ),
        migrations.CreateModel(
            name="ApprovalViewer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "approval",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="viewers",
                        to="approvals.approval",
                    ),
                ),
                ("person", models.TextField()),
                ("at", models.DateTimeField(db_index=True)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("approval", "person"), name="approval_viewer_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ToolSchema",
            fields=[
                ("digest", models.TextField(primary_key=True, serialize=False)),
                ("body", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="VersionDecision",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("agent", models.TextField()),
                ("before", models.TextField()),
                ("after", models.TextField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("count", models.IntegerField()),
                ("at", models.DateTimeField()),
                ("withdrawn", models.IntegerField(db_default=0, default=0)),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["agent", "before", "after", "-id"], name="version_decision_pair"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="VersionWithdrawal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("agent", models.TextField()),
                ("before", models.TextField()),
                ("after", models.TextField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("reason", models.TextField()),
                ("at", models.DateTimeField()),
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["agent", "before", "after"], name="version_withdrawal_pair"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DailyDecisions",
            fields=[
                ("day", models.DateField(primary_key=True, serialize=False)),
                ("verdicts", models.JSONField()),
                ("median", models.FloatField(null=True)),
                ("p90", models.FloatField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Instance",
            fields=[
                ("signature", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("secret_hash", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("idempotency_key", models.TextField()),
                ("fingerprint", models.TextField()),
                ("sealed", models.JSONField(null=True)),
                ("updates", models.JSONField(db_default={})),
                ("deleted_at", models.DateTimeField(null=True)),
                ("last_request_at", models.DateTimeField(null=True)),
                ("framework", models.TextField(db_default="")),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="instances",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("owner", "idempotency_key"), name="instance_key"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ApprovalUse",
            fields=[
                ("run", models.UUIDField(primary_key=True, serialize=False)),
                ("idempotency_key", models.TextField()),
                ("used_at", models.DateTimeField()),
                ("outcome", models.TextField(null=True)),
                ("note", models.TextField(null=True)),
                ("reported_at", models.DateTimeField(null=True)),
                (
                    "instance",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="uses",
                        to="approvals.instance",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="InstanceWebhook",
            fields=[
                (
                    "instance",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="webhook",
                        serialize=False,
                        to="approvals.instance",
                    ),
                ),
                ("url", models.TextField()),
                ("registration_id", models.TextField()),
                ("secret", models.JSONField()),
                ("since", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="OutboxMessage",
            fields=[
                ("number", models.BigAutoField(primary_key=True, serialize=False)),
                ("id", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("kind", models.TextField()),
                ("destination", models.TextField()),
                ("lane", models.TextField()),
                ("subject", models.TextField()),
                ("body", models.TextField(null=True)),
                ("occurred_at", models.DateTimeField(null=True)),
                ("next_at", models.DateTimeField()),
                ("gives_up_at", models.DateTimeField(null=True)),
                ("leased_until", models.DateTimeField(null=True)),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("answer", models.TextField(db_default="", default="")),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "ending",
                    models.TextField(
                        choices=[
                            ("delivered", "Delivered"),
                            ("given up", "Given Up"),
                            ("dropped", "Dropped"),
                        ],
                        null=True,
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["lane", "next_at"],
                        name="outbox_lane",
                    ),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=["subject", "number"],
                        name="outbox_subject",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("ended_at__isnull", True), ("leased_until__isnull", False)
                        ),
                        fields=["lane", "leased_until"],
                        name="outbox_leased",
                    ),
                    models.Index(fields=["destination", "-number"], name="outbox_destination"),
                    models.Index(
                        condition=models.Q(("ended_at__isnull", False)),
                        fields=["ended_at"],
                        name="outbox_ended",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                ("name", models.TextField()),
                ("url", models.TextField()),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                ("agent", models.TextField(db_default="", default="")),
                ("tool", models.TextField(db_default="", default="")),
                ("risk", models.TextField(db_default="", default="")),
                ("secret", models.JSONField()),
                ("former_secret", models.JSONField(null=True)),
                ("former_until", models.DateTimeField(null=True)),
                ("created_by", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("paused_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.RunSQL(APPEND_ONLY),
        migrations.RunSQL(COMMENTS),
        migrations.RunSQL(TOKENS),
        migrations.RunSQL(LINKS_END_ONCE),
        migrations.RunSQL(NO_AUDIT_KEY),
        migrations.RunSQL(EXCLUDED),
        migrations.RunSQL(STATISTICS),
        migrations.RunSQL(GROUPS),
        migrations.RunSQL(INSTANCES),
        migrations.RunSQL(USES),
    ]
