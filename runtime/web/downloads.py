"""Streams long files one page of rows at a time, and writes CSV that is safe to open in a spreadsheet.

Each page is a statement of its own, so that a slow reader holds no transaction open in Postgres and the memory does not
grow.
"""

import csv
from collections.abc import Generator, Iterable, Iterator
from threading import BoundedSemaphore
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse

from runtime.errors import InvalidInput

Answer = HttpResponse | StreamingHttpResponse
PLAIN = "text/plain; charset=utf-8"
RUNNING = 2  # downloads of a process at once: a slow reader holds one of its threads

_room = BoundedSemaphore(RUNNING)


class _Line:
    """The file to which csv writes: it returns the line."""

    def write(self, text: str) -> str:
        return text


class Download:
    """The lines of one file. Close it, or read it to the end, to make room for the next download."""

    def __init__(self, first: str, remaining: Generator[str]) -> None:
        self._first, self._remaining = first, remaining

    def __iter__(self) -> Iterator[str]:
        """Return the lines, several in each text."""
        yield self._first
        yield from self._remaining

    def close(self) -> None:
        """Make room for the next download."""
        self._remaining.close()


def start(texts: Iterable[str]) -> Download | None:
    """Return the file with these texts. None if RUNNING downloads are under way."""
    if not _room.acquire(blocking=False):
        return None
    lines = _yield_in_room(texts)
    first = next(lines, "")  # from here on, the end of `lines` makes room
    return Download(first, lines)


def stream(download: Download | None, name: str, content_type: str) -> Answer:
    """Answer with a file of this name, or, without one, that RUNNING downloads are under way."""
    if download is None:
        text = "Too many exports are running. Try again in a minute."
        return HttpResponse(text, PLAIN, status=503, headers={"Retry-After": "60"})
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingHttpResponse(download, content_type=content_type, headers=headers)


def refuse(problem: InvalidInput) -> HttpResponse:
    """Answer that the filters of a file are wrong."""
    return HttpResponse(f"{problem.field} {problem.detail}.", PLAIN, status=problem.status)


def format_row(cells: Iterable[Any]) -> str:
    """Return a line of CSV."""
    return str(csv.writer(_Line()).writerow(map(format_cell, cells)))


def answer_table(name: str, columns: Iterable[Any], rows: Iterable[Iterable[Any]]) -> HttpResponse:
    """Answer with a short table as a CSV file of this name."""
    lines = "".join(map(format_row, (columns, *rows)))
    answer = HttpResponse(lines, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer


def format_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet reads as a formula, even after blanks."""
    if isinstance(value, list):
        value = " › ".join(map(str, value))
    if isinstance(value, str) and value.lstrip().startswith(
        ("=", "+", "-", "@", "＝", "＋", "－", "＠")
    ):
        return f"'{value}"
    return "'" + value if isinstance(value, str) and value[:1] in ("\t", "\r", "\n") else value


def _yield_in_room(texts: Iterable[str]) -> Generator[str]:
    try:
        yield from texts
    finally:
        _room.release()
