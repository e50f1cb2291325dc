"""The roles of the embedded Postgres: a superuser for the supervisor alone, an owner, and those of web and workers.

The owner has the tables and makes the migrations. Web and workers have the rights that `config.rights` grants
them. None of the three is a superuser, so none reads a file of the server or disables a trigger of the audit.
In a folder of an earlier version the superuser has the name that the web uses now: it is renamed.
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
WEB = "abeyance"  # by its first name, under which operators' own programs read the database
WORKER = "abeyance_worker"

_RENAMER = "abeyance_renamer"  # a session cannot rename its own role

# What the application has made and another role owns, as statements that move it; parts of extensions stay.
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
        """Make the database and the roles, and have the owner own what is there. Safe to repeat.

        Raises psycopg.OperationalError as long as the server does not answer.
        """
        _have_superuser(cluster, self.passwords[WEB])
        postgres.ensure_database(cluster)
        with psycopg.connect(cluster.url(), autocommit=True, connect_timeout=3) as connection:
            connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(_RENAMER)))
            with connection.transaction():
                for name, password in self.passwords.items():
                    _ensure_role(connection, name, password)
                _hand_over(connection)


def of(home: DataDir) -> Roles:
    """Those of a data folder, whose passwords are made when they are first asked for."""
    return Roles(
        passwords={
            OWNER: home.secret("postgres_owner"),
            WEB: home.secret("postgres"),
            WORKER: home.secret("postgres_worker"),
        }
    )


def _have_superuser(cluster: Cluster, earlier: str) -> None:
    """Rename the superuser of an earlier version, whose password is that of the web now."""
    try:
        psycopg.connect(cluster.url("postgres"), connect_timeout=3).close()
    except psycopg.OperationalError as error:
        if "password authentication failed" not in str(error):
            raise
        _rename_superuser(cluster, earlier)


def _rename_superuser(cluster: Cluster, earlier: str) -> None:
    """By a superuser for the purpose; a start that is killed in between does it again."""
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


def _ensure_role(connection: Connection[TupleRow], name: str, password: str) -> None:
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
        # To see whose sessions there are: `alive sweeper` as a command asks for that.
        sql.SQL("GRANT pg_read_all_stats TO {}").format(owner),
    ):
        connection.execute(statement)
    for (statement,) in connection.execute(_FOREIGN, {"owner": OWNER}).fetchall():
        connection.execute(statement.encode())


def _sealed(connection: Connection[TupleRow], name: str, password: str) -> str:
    """The password as Postgres keeps it, so that no log of statements ever holds it."""
    sealed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    return sealed.decode()
