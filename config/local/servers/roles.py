"""Creates the roles of the embedded Postgres: a superuser for the supervisor only, an owner, and web and workers.

The owner owns the tables and runs the migrations. `config.rights` grants web and workers their rights. None of the
three is a superuser, so none can read the server's files or disable the audit's triggers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from config.local.data_dir import DataDir
from config.local.servers import postgres
from config.local.servers.postgres import Cluster

OWNER = "signoff_owner"
WEB = "signoff"
WORKER = "signoff_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The password of each role that the application logs in as."""

    passwords: Mapping[str, str] = field(repr=False)

    def arrange(self, cluster: Cluster) -> None:
        """Create the database and the roles. Safe to repeat.

        Raise psycopg.OperationalError while the server does not answer.
        """
        postgres.ensure_database(cluster)
        with psycopg.connect(cluster.url(), connect_timeout=3) as connection:
            for name, password in self.passwords.items():
                ensure_role(connection, name, password)
            _give_database(connection)


def of(home: DataDir) -> Roles:
    """Return the roles of a data folder. The first call creates their passwords."""
    return Roles(
        passwords={
            OWNER: home.secret("postgres_owner"),
            WEB: home.secret("postgres"),
            WORKER: home.secret("postgres_worker"),
        }
    )


def ensure_role(connection: Connection[TupleRow], name: str, password: str) -> None:
    """Create a role that may log in and nothing else, unless it is there."""
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone() is None:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(_sealed(connection, name, password))
            )
        )


def _give_database(connection: Connection[TupleRow]) -> None:
    owner = sql.Identifier(OWNER)
    for statement in (
        sql.SQL("ALTER DATABASE {} OWNER TO {}").format(sql.Identifier(postgres.DATABASE), owner),
        sql.SQL("REVOKE CREATE ON SCHEMA public FROM PUBLIC"),
        sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(owner),
        # `healthcheck sweeper` reads pg_stat_activity.
        sql.SQL("GRANT pg_read_all_stats TO {}").format(owner),
    ):
        connection.execute(statement)


def _sealed(connection: Connection[TupleRow], name: str, password: str) -> str:
    """Hash the password as Postgres stores it, so that no log of statements ever contains it."""
    sealed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    return sealed.decode()
