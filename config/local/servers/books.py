"""Makes the books of the demonstration: a database with suppliers and orders, for the agents of agents.flows.invoices.

It is in the embedded Postgres with the application's database, and has a role that only reads and one that writes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psycopg

from config.local.data_dir import DataDir
from config.local.servers import postgres

DATABASE = "books"
READER = "books_reader"
WRITER = "books_writer"

TABLES = """
    CREATE TABLE supplier (
        number text PRIMARY KEY, name text NOT NULL, email text NOT NULL, iban text NOT NULL
    );
    CREATE TABLE purchase_order (
        number text PRIMARY KEY, supplier text NOT NULL REFERENCES supplier,
        amount numeric(12, 2) NOT NULL, currency text NOT NULL, UNIQUE (number, supplier)
    );
    CREATE TABLE invoice (
        supplier text NOT NULL REFERENCES supplier, number text NOT NULL, purchase_order text NOT NULL,
        date date NOT NULL, amount numeric(12, 2) NOT NULL CHECK (amount > 0), currency text NOT NULL,
        iban text NOT NULL, run uuid NOT NULL, key text UNIQUE,
        state text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'booked', 'rejected')),
        reason text NOT NULL DEFAULT '', changed_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (supplier, number),
        FOREIGN KEY (purchase_order, supplier) REFERENCES purchase_order (number, supplier),
        CHECK ((state = 'booked') = (key IS NOT NULL))
    );
    INSERT INTO supplier VALUES
        ('S-100', 'Northern Paper', 'billing@northern-paper.example', 'DE02120300000000202051'),
        ('S-200', 'Delta Tools', 'invoices@delta-tools.example', 'FR1420041010050500013M02606');
    INSERT INTO purchase_order VALUES
        ('PO-1001', 'S-100', 1190.00, 'EUR'), ('PO-1002', 'S-200', 4760.50, 'EUR'),
        ('PO-1003', 'S-100', 312.40, 'EUR');
    REVOKE ALL ON DATABASE books FROM PUBLIC;
    GRANT CONNECT ON DATABASE books TO books_reader, books_writer;
    ALTER ROLE books_reader CONNECTION LIMIT 10;
    ALTER ROLE books_writer CONNECTION LIMIT 10;
    GRANT SELECT ON ALL TABLES IN SCHEMA public TO books_reader, books_writer;
    GRANT INSERT, UPDATE ON invoice TO books_writer;
    GRANT UPDATE (iban) ON supplier TO books_writer;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """The password of each role."""

    passwords: Mapping[str, str] = field(repr=False)

    def arrange(self, url: Callable[[str], str]) -> None:
        """Create the roles, the database and its tables, unless they are there. Safe to repeat after a kill.

        `url` returns the superuser's URL of a database.
        """
        with psycopg.connect(url("postgres"), autocommit=True, connect_timeout=3) as connection:
            for name, password in self.passwords.items():
                postgres.ensure_role(connection, name, password)
            there = "SELECT FROM pg_database WHERE datname = %s"
            if connection.execute(there, [DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")
        with psycopg.connect(url(DATABASE), connect_timeout=3) as connection:
            if connection.execute("SELECT to_regclass('public.invoice')").fetchone() == (None,):
                connection.execute(TABLES)


def read_books(home: DataDir) -> Books:
    """Return the books of a data folder. The first call creates the passwords."""
    return Books(passwords={name: home.secret(name) for name in (READER, WRITER)})


def build_books_variables(cluster: postgres.Cluster, home: DataDir) -> dict[str, str]:
    """Return the variables of workers that name the books."""
    passwords = read_books(home).passwords
    return {
        f"{role.upper()}_URL": postgres.build_postgres_url(
            cluster.socket, role, passwords[role], DATABASE
        )
        for role in (READER, WRITER)
    }
