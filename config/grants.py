"""Grants the roles of web and workers their rights on each table. The owner of the tables runs it.

Neither role owns a table, so neither can disable a trigger, change a table or truncate one. Both only add rows to the
audit. A worker reads permissions and cannot change them; it cannot read tokens and sessions. Partitions are made and
dropped by functions that run with the owner's rights and do nothing else.
"""

from dataclasses import dataclass

from django.db import DatabaseError, connection, transaction
from psycopg import sql

ALL, KEEP = "SELECT, INSERT, UPDATE, DELETE", "SELECT, INSERT, UPDATE"
ADD, READ, NOTHING = "SELECT, INSERT", "SELECT", ""

# Rights of web and of workers. Both may write any other table.
TABLES = {
    "approvals_auditentry": (ADD, ADD),
    "approvals_audithead": (KEEP, KEEP),
    "approvals_toolschema": (READ, ADD),
    "approvals_approvaloutcome": (READ, KEEP),
    "runtime_run": (KEEP, KEEP),  # neither may delete a run
    "runtime_journalentry": (ADD, "SELECT, INSERT, DELETE"),  # the sweeper applies retention
    "runtime_usedapproval": (ADD, ADD),
    "runtime_lateoutcome": (ADD, "SELECT, INSERT, DELETE"),  # as above; instances report to the web
    "runtime_storedpartialreply": (NOTHING, ALL),
    "runtime_trigger": (KEEP, KEEP),
    "runtime_triggeract": (ADD, READ),  # people change triggers; the sweeper starts their runs
    "runtime_occurrence": (KEEP, ALL),  # the sweeper deletes old events
    "runtime_receivedevent": (ADD, "SELECT, INSERT, DELETE"),  # the sweeper reads sources
    "runtime_triggerwebhook": (ALL, READ),
    "runtime_triggersource": (ALL, "SELECT, UPDATE"),
    "runtime_watchedfile": (READ, ALL),
    "runtime_archivedentries": (READ, ALL),  # the sweeper writes and drops the files
    "runtime_archivedrun": (
        "SELECT, UPDATE",
        ALL,
    ),  # people restore runs; the sweeper does the rest
    "runtime_droppedobject": (READ, ALL),  # the sweeper deletes the objects
    "runtime_prompttrial": (ADD, "SELECT, UPDATE, DELETE"),  # people ask; workers try
    "runtime_runreplay": (ADD, "SELECT, UPDATE, DELETE"),  # people ask; workers replay
    "runtime_editpreview": (KEEP, "SELECT, UPDATE, DELETE"),  # people ask; workers preview
    "runtime_runusage": (READ, KEEP),  # the sweeper counts
    "runtime_uncountedrun": (NOTHING, ALL),
    "runtime_dailyusage": (READ, KEEP),
    "runtime_dailyruns": (READ, KEEP),
    "approvals_dailydecisions": (READ, KEEP),
    "runtime_sweeperloop": (READ, ALL),  # the sweeper records its rounds and deletes old records
    "django_migrations": (READ, READ),
    "auth_user": (ALL, READ),
    "auth_group": (ALL, READ),
    "auth_user_groups": (ALL, READ),
    "auth_permission": (READ, READ),
    "auth_group_permissions": (READ, READ),
    "auth_user_user_permissions": (READ, READ),
    "django_content_type": (READ, READ),
    "approvals_token": (KEEP, NOTHING),
    "approvals_passwordlink": (KEEP, NOTHING),
    "approvals_secondfactor": (KEEP, NOTHING),
    "approvals_instance": (KEEP, NOTHING),
    "approvals_instancewebhook": (ALL, READ),
    "approvals_outboxmessage": (ALL, ALL),
    "approvals_subscription": (ALL, READ),
    "approvals_slackrequest": (ALL, NOTHING),
    "approvals_approvaluse": (KEEP, "SELECT, UPDATE"),  # retention removes notes
    "approvals_assignment": (ADD, READ),
    "approvals_absence": (ADD, READ),
    "approvals_directorytoken": (KEEP, NOTHING),
    "approvals_directoryentry": (ALL, NOTHING),
    "approvals_mappingact": (ADD, NOTHING),
    "approvals_savedview": (ALL, NOTHING),
    "approvals_timepreference": (ALL, NOTHING),
    "approvals_vote": (ALL, READ),
    "approvals_reviewtime": (KEEP, "SELECT, DELETE"),  # retention deletes them with the arguments
    "approvals_comment": (ADD, "SELECT, DELETE"),  # retention deletes them
    "approvals_handover": (ALL, "SELECT, DELETE"),  # as above
    "approvals_approvalclaim": (ALL, NOTHING),
    "approvals_approvalviewer": (ALL, NOTHING),
    "approvals_policyact": (ADD, READ),
    "approvals_promptact": (ADD, READ),
    "approvals_allowanceact": (ADD, ADD),  # a worker adds uses
    "approvals_noticechannel": (ALL, "SELECT, UPDATE"),
    "approvals_sentnotice": (ALL, ALL),
    "approvals_noticetimes": (ALL, READ),
    "approvals_versiondecision": (ADD, READ),
    "approvals_versionwithdrawal": (ADD, READ),
    "django_session": (ALL, NOTHING),
    "approvals_loginfailures": (ALL, NOTHING),
}
PARTITION = (READ, READ)  # rows go through the whole table

OWNERS_FUNCTIONS = ("signoff_make_partitions(integer)", "signoff_drop_partition(text)")


class NotGranted(Exception):
    """The rights cannot be granted; the message names the variable or has the error of Postgres."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    name: str
    is_partition: bool

    def rights(self) -> tuple[str, str]:
        return PARTITION if self.is_partition else TABLES.get(self.name, (ALL, ALL))


def grant(*, web: str, worker: str) -> None:
    """Give both roles exactly their rights on all existing tables, in one transaction. Raise NotGranted."""
    _check("SIGNOFF_WEB_ROLE", web)
    _check("SIGNOFF_WORKER_ROLE", worker)
    try:
        with transaction.atomic():
            for table in _list_tables():
                for role, rights in zip((web, worker), table.rights(), strict=True):
                    _execute(
                        "REVOKE ALL ON {schema}.{table} FROM {role}", table=table.name, role=role
                    )
                    if rights:
                        _execute(
                            f"GRANT {rights} ON {{schema}}.{{table}} TO {{role}}",
                            table=table.name,
                            role=role,
                        )
            for role in (web, worker):
                _execute("GRANT USAGE ON SCHEMA {schema} TO {role}", role=role)
                _execute(
                    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}", role=role
                )
                # For partitions that are made later
                _execute(
                    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}",
                    role=role,
                )
            for function in OWNERS_FUNCTIONS:
                # The worker calls it, and it runs as its owner, on the tables of its own schema only.
                _execute(
                    f"ALTER FUNCTION {{schema}}.{function} SECURITY DEFINER SET search_path = {{schema}}, pg_temp"
                )
                _execute(f"REVOKE ALL ON FUNCTION {{schema}}.{function} FROM PUBLIC")
                _execute(
                    f"GRANT EXECUTE ON FUNCTION {{schema}}.{function} TO {{role}}", role=worker
                )
    except DatabaseError as problem:
        raise NotGranted(" ".join(str(problem).split())) from problem


def ensure_role(name: str, password: str) -> None:
    """Create the role if it does not exist, and set its password. Raise NotGranted."""
    role = {"role": name}
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", [name])
            row = cursor.fetchone()
            if row is None:
                _execute("CREATE ROLE {role} NOSUPERUSER NOCREATEDB NOCREATEROLE", **role)
            elif row[0]:
                raise NotGranted(f"{name} is a superuser, whose rights cannot be limited")
            # Hashed as Postgres stores it, so that a log of statements never contains the password.
            sealed = connection.connection.pgconn.encrypt_password(
                password.encode(), name.encode(), b"scram-sha-256"
            )
            cursor.execute(
                sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(name), sql.Literal(sealed.decode())
                )
            )
    except DatabaseError as problem:
        raise NotGranted(" ".join(str(problem).split())) from problem


def _check(variable: str, role: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT rolsuper, rolname = current_user FROM pg_roles WHERE rolname = %s", [role]
        )
        row = cursor.fetchone()
    if row is None:
        raise NotGranted(f"{variable} names {role}, which is no role: create it first")
    if row[0]:
        raise NotGranted(f"{variable} names {role}, a superuser, who cannot be kept from anything")
    if row[1]:
        raise NotGranted(f"{variable} names {role}, who runs this: give the owner of the tables")


def _list_tables() -> list[_Table]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, relispartition FROM pg_class WHERE relkind IN ('r', 'p')"
            " AND relnamespace = current_schema()::regnamespace ORDER BY relname"
        )
        return [_Table(name=name, is_partition=partition) for name, partition in cursor.fetchall()]


def _execute(statement: str, **names: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        names["schema"] = cursor.fetchone()[0]
        composed = sql.SQL(statement).format(
            **{name: sql.Identifier(value) for name, value in names.items()}
        )
        cursor.execute(composed)
