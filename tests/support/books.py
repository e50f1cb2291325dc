"""The books of the demonstration in the tests' Postgres, empty of invoices for each test."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
import pytest

from config.local.servers import books
from config.local.servers.books import READER, WRITER

PASSWORD = "of the books"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The books as their owner sees them."""

    url: str

    def rows(self, query: LiteralString, *given: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query, given or None).fetchall()

    def invoices(self) -> list[tuple[str, str, str]]:
        return self.rows("SELECT number, amount::text, state FROM invoice ORDER BY number")


@pytest.fixture(scope="module")
def made_books(postgres_url: str) -> Iterator[str]:
    def url(database: str, role: str = "") -> str:
        parts = urlsplit(postgres_url)
        place = parts.netloc.rpartition("@")[2]
        user = f"{role}:{PASSWORD.replace(' ', '%20')}@{place}" if role else parts.netloc
        return parts._replace(netloc=user, path=f"/{database}").geturl()

    for _ in range(2):  # the second time changes nothing
        books.Books(passwords={READER: PASSWORD, WRITER: PASSWORD}).arrange(url)
    with pytest.MonkeyPatch.context() as variables:
        for role in (READER, WRITER):
            variables.setenv(f"{role.upper()}_URL", url(books.DATABASE, role))
        yield url(books.DATABASE)
    with psycopg.connect(url("postgres"), autocommit=True) as owner:
        owner.execute(f"DROP DATABASE {books.DATABASE} WITH (FORCE)")
        owner.execute(f"DROP ROLE {READER}, {WRITER}")


@pytest.fixture
def ledger(made_books: str) -> Iterator[Ledger]:
    yield Ledger(made_books)
    with psycopg.connect(made_books) as connection:
        connection.execute("TRUNCATE invoice")
        connection.execute("UPDATE supplier SET iban = %s WHERE number = 'S-100'", [KNOWN])


KNOWN = "DE02120300000000202051"
OTHER = "DE89370400440532013000"
