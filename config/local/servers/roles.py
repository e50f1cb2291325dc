"""Creates the roles of the embedded Postgres: a superuser for the supervisor only, an owner, and web and workers.

The owner owns the tables and runs the migrations. `config.rights` grants web and workers their rights. None of the
three is a superuser, so none can read the server's files or disable the audit's triggers. In a folder of an earlier
version the superuser has the name that the web uses now: it is renamed.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from config.local.data_dir import DataDir
from config.local.servers import postgres
from config.local.servers.postgres import Cluster

OWNER = "abeyance_owner"
WEB = "abeyance"  # its earlier name, with which operators' own programs read the database
WORKER = "abeyance_worker"

_RENAMER = "abeyance_renamer"  # a session cannot rename its own role

# Statements that give the application's tables and routines to the owner. Parts of extensions stay.
_FOREIGN = """
    SELECT format('ALTER TABLE %%s OWNER TO %%I', c.oid::regclass, %(owner)s::text) FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
        AND c.relowner <> (%(owner)s::text)::regrole AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                AND (d.deptype = 'e' OR c.relkind = 'S' AND d.deptype IN ('a', 'i')))
    UNION ALL
    SELECT format('ALTER ROUTINE %%s OWNER TO %%I', p.oid::regprocedure, %(owner)s::text) FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND p.proowner <> (%(owner)s::text)::regrole
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass
            AND d.objid = p.oid AND d.deptype = 'e')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The password of each role that the application logs in as."""

    passwords: Mapping[str, str] = field(repr=False)

    def arrange(self, cluster: Cluster) -> None:
        """Create the database and the roles, and give all tables to the owner. Safe to repeat.

        Raise psycopg.OperationalError while the server does not answer.
        """
        _have_superuser(cluster, self.passwords[WEB])
        postgres.ensure_database(cluster)
        with psycopg.connect(cluster.url(), autocommit=True, connect_timeout=3) as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(_RENAMER)))
            with connection.transaction():
                for name, password in self.passwords.items():
                    ensure_role(connection, name, password)
                _hand_over(connection)


def of(home: DataDir) -> Roles:
    """Return the roles of a data folder. The first call creates their passwords."""
    return Roles(
        passwords={
            OWNER: home.secret("postgres_owner"),
            WEB: home.secret("postgres"),
            WORKER: home.secret("postgres_worker"),
        }
    )


def _have_superuser(cluster: Cluster, earlier: str) -> None:
    """Rename the superuser of an earlier version, which has the web's current password."""
    try:
        psycopg.connect(cluster.url("postgres"), connect_timeout=3).close()
    except psycopg.OperationalError as error:
        if "password authentication failed" not in str(error):
            raise
        _rename_superuser(cluster, earlier)


def _rename_superuser(cluster: Cluster, earlier: str) -> None:
    """Rename it through a temporary superuser. The next start repeats a rename that was interrupted."""
    password = secrets.token_urlsafe(32)
    found = postgres.url(cluster.socket, WEB, earlier, "postgres")
    with psycopg.connect(found, autocommit=True, connect_timeout=3) as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(_RENAMER)))
        connection.execute(
            sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(
                sql.Identifier(_RENAMER), sql.Literal(_sealed(connection, _RENAMER, password))
            )
        )
    renamer = postgres.url(cluster.socket, _RENAMER, password, "postgres")
    with psycopg.connect(renamer, connect_timeout=3) as connection:
        web, superuser = sql.Identifier(WEB), sql.Identifier(postgres.SUPERUSER)
        sealed = _sealed(connection, postgres.SUPERUSER, cluster.password)
        connection.execute(sql.SQL("ALTER ROLE {} RENAME TO {}").format(web, superuser))
        connection.execute(
            sql.SQL("ALTER ROLE {} PASSWORD {}").format(superuser, sql.Literal(sealed))
        )


def ensure_role(connection: Connection[TupleRow], name: str, password: str) -> None:
    """Create a role that may log in and nothing else, unless it is there."""
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(_sealed(connection, name, password))
            )
        )


def _hand_over(connection: Connection[TupleRow]) -> None:
    owner = sql.Identifier(OWNER)
    for statement in (
        sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(postgres.DATABASE), owner),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
        sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(owner),
        # `healthcheck sweeper` reads pg_stat_activity.
        sql.SQL("GRANT pg_read_all_stats TO {}").format(owner),
    ):
        connection.execute(statement)
    for (statement,) in connection.execute(_FOREIGN, {"owner": OWNER}).fetchall():
        connection.execute(statement.encode())


def _sealed(connection: Connection[TupleRow], name: str, password: str) -> str:
    """Hash the password as Postgres stores it, so that no log of statements ever contains it."""
    sealed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    return sealed.decode()
