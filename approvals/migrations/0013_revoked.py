"""A revoked token stays revoked, whatever the role that web logs in with writes."""

from typing import ClassVar

from django.db import migrations

# A row that went could come back as it was before, with its signature. So none goes, and none changes its id.
CREATE = """
CREATE FUNCTION approvals_token_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'tokens are not deleted' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NEW.public_id <> OLD.public_id THEN
        RAISE EXCEPTION 'tokens keep their id' USING ERRCODE = 'insufficient_privilege';
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

DROP = """
DROP TRIGGER approvals_token_stays_revoked ON approvals_token;
DROP FUNCTION approvals_token_keep();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0012_risk")]

    operations: ClassVar = [migrations.RunSQL(CREATE, DROP)]
