"""A trigger keeps a revoked token revoked against writes by the role that web logs in with."""

from typing import ClassVar

from django.db import migrations

# A token that was deleted, or had another owner, while its owner revokes would be valid again once it is put back.
CREATE = """
CREATE FUNCTION approvals_token_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A deleted row has no NEW, so this refuses it too.
    IF (NEW.public_id, NEW.owner_id, NEW.secret_hash, NEW.scopes, NEW.created_at)
        IS DISTINCT FROM (OLD.public_id, OLD.owner_id, OLD.secret_hash, OLD.scopes, OLD.created_at) THEN
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

DROP = """
DROP TRIGGER approvals_token_stays_revoked ON approvals_token;
DROP FUNCTION approvals_token_keep();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("approvals", "0012_risk")]

    operations: ClassVar = [migrations.RunSQL(CREATE, DROP)]
