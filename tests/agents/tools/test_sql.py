"""An agent's query of a real Postgres, by a role that reads and by one that could write."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from agents.errors import DefinitionError, NotDone, ToolError
from agents.tools.sql import MAX_ANSWER, MAX_ROWS, sql_query
from tests.agents.conftest import context

SHOP = "a table shop_price(item, euros)"


@pytest.fixture(scope="module")
def shop(postgres_url: str) -> Iterator[str]:
    """The URL of a database of its own, and two roles of it: `shop_reader` and `shop_writer`."""
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE shop_of_tests")
        for role in ("shop_reader", "shop_writer"):
            owner.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER PASSWORD 'shop'")
        url = _of(postgres_url, database="shop_of_tests")
        with psycopg.connect(url, autocommit=True) as inside:
            inside.execute(
                """
                CREATE TABLE price (item text, euros numeric, since date, tags jsonb, number bigint);
                INSERT INTO price SELECT 'mug ' || n, 4.20, '2026-01-31', '{"a": [1]}', 9007199254740993
                FROM generate_series(1, 30) n;
                GRANT SELECT ON price TO shop_reader;
                CREATE VIEW mug AS SELECT * FROM price;
                GRANT SELECT, INSERT ON price, mug TO shop_writer;
                """
            )
        yield url
        owner.execute("DROP DATABASE shop_of_tests WITH (FORCE)")
        owner.execute("DROP ROLE shop_reader, shop_writer")


def _of(url: str, *, database: str | None = None, role: str | None = None) -> str:
    given: dict[str, Any] = conninfo_to_dict(url)
    given |= {} if database is None else {"dbname": database}
    given |= {} if role is None else {"user": role, "password": "shop"}
    return make_conninfo(**given)


@pytest.fixture
def read(shop: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SHOP_URL", _of(shop, role="shop_reader"))

    def read(query: str, *values: Any, **given: Any) -> Any:
        return sql_query("SHOP_URL", description=SHOP, **given)(context(), query, list(values))

    return read


def test_rows_come_as_json_and_no_more_than_asked_for(read: Any) -> None:
    found = read("SELECT * FROM price WHERE item = %s", "mug 7", max_rows=1)
    assert found == {
        "columns": ["item", "euros", "since", "tags", "number"],
        "rows": [["mug 7", "4.20", "2026-01-31", {"a": [1]}, "9007199254740993"]],
        "more": False,
    }
    some = read("SELECT item, item FROM price -- all of them\n;\n", max_rows=3)
    assert (len(some["rows"]), some["more"]) == (3, True)
    large = read("SELECT repeat('x', 100000) FROM price", max_rows=MAX_ROWS)
    assert (len(large["rows"]), large["more"]) == (MAX_ANSWER // 100_000, True)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT 1; DROP TABLE price", "multiple commands"),
        ("SELECT 1) a; DROP TABLE price; SELECT * FROM (SELECT 1", "syntax error"),
        ("SELECT repeat('x', 300000)) a, (SELECT 1", "syntax error"),  # a row past the bound
        ("DELETE FROM price RETURNING 1", "syntax error"),
        (
            "WITH gone AS (DELETE FROM price RETURNING 1) SELECT * FROM gone",
            "data-modifying statement",
        ),
        ("SELECT set_config('transaction_read_only', 'off', true)", "read-write mode"),
        ("SET TRANSACTION READ WRITE", "syntax error"),
        ("SELECT pg_sleep(20)", r"longer than 0\.2 seconds"),
        ("SELECT * FROM nothing", "does not exist"),
        ("SELECT repeat('x', 300000)", r"query: a row has more than 262144 bytes$"),
        ("SELECT %s", "query: "),
    ],
)
def test_anything_but_a_short_select_is_refused(read: Any, query: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        read(query, seconds=0.2)


def test_a_query_sends_no_notification(shop: str, read: Any) -> None:
    with psycopg.connect(shop, autocommit=True) as listener:
        listener.execute("LISTEN told")
        read("SELECT pg_notify('told', 'by the query')")
        listener.execute("NOTIFY told, 'by the test'")
        (first, *_) = listener.notifies(timeout=60, stop_after=1)
        assert first.payload == "by the test"


def test_a_role_that_could_write_is_refused(shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = sql_query("SHOP_URL", description=SHOP)
    for url, why in (
        (shop, "is a superuser"),
        (_of(shop, role="shop_writer"), "can change 2 tables or views"),
        (_of(shop, role="missing"), "cannot be reached"),
        ("", "the workers have no SHOP_URL"),
    ):
        monkeypatch.setenv("SHOP_URL", url)
        with pytest.raises(NotDone, match=why):
            ask(context(), "SELECT 1", [])


def test_a_wrong_definition_is_a_mistake_of_the_author() -> None:
    for number in (0, MAX_ROWS + 1):
        with pytest.raises(DefinitionError, match="max_rows"):
            sql_query("SHOP_URL", description=SHOP, max_rows=number)
    with pytest.raises(DefinitionError, match="seconds must be greater than 0"):
        sql_query("SHOP_URL", description=SHOP, seconds=-10)
    with pytest.raises(DefinitionError, match="url_env"):
        sql_query("postgres://me:secret@host/db", description=SHOP)
