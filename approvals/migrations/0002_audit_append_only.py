"""Postgres itself refuses to change or delete an audit row, for every user."""

from typing import ClassVar

from django.db import migrations

CREATE = """
CREATE FUNCTION approvals_auditentry_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit rows are append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER approvals_auditentry_append_only
    BEFORE UPDATE OR DELETE ON approvals_auditentry
    FOR EACH ROW EXECUTE FUNCTION approvals_auditentry_refuse();
"""

DROP = """
DROP TRIGGER approvals_auditentry_append_only ON approvals_auditentry;
DROP FUNCTION approvals_auditentry_refuse();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0001_initial")]

    operations: ClassVar = [migrations.RunSQL(CREATE, DROP)]
