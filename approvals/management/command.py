"""The base of our commands: help with examples, secrets from files, refusals in one line."""

import getpass
import secrets
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.errors import InvalidInput, RequestError


class Command(BaseCommand):
    """A command with `examples` below its help. Its errors are one line."""

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Make the parser, with the examples as its epilog."""
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        kwargs.setdefault("epilog", f"examples:\n{self.examples}")
        return super().create_parser(prog_name, subcommand, **kwargs)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; known errors end it with one line."""
        with convert_errors():
            return super().execute(*args, **options)


@contextmanager
def convert_errors() -> Iterator[None]:
    """Turn refusals into errors of the command."""
    try:
        yield
    except InvalidInput as refused:
        raise CommandError(f"{refused.field} {refused.detail}") from refused
    except RequestError as refused:
        raise CommandError(refused.detail) from refused


def read_text(file: str, limit: int = -1) -> str:
    """Read at most so many characters of a UTF-8 file, `-` for standard input. Raises CommandError."""
    try:
        if file == "-":
            return sys.stdin.read(limit)
        with Path(file).open(encoding="utf-8") as stream:
            return stream.read(limit)
    except (OSError, UnicodeDecodeError) as exc:
        raise CommandError(f"{file} cannot be read: {exc}") from exc


def add_password_options(parser: CommandParser) -> None:
    """Add the options for a password. Without any of them the command asks on the terminal."""
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--password-file", type=Path, metavar="PATH", help="its first line")
    ways.add_argument(
        "--password-stdin", action="store_true", help="the first line of standard input"
    )
    ways.add_argument("--generate", action="store_true", help="make one up and print it, once")


def read_password(options: dict[str, Any]) -> str:
    """Return the password that the options name. Raises CommandError without one."""
    path: Path | None = options["password_file"]
    if options["generate"]:
        return secrets.token_urlsafe(15)
    if path is not None:
        try:
            return _take_first_line(path.expanduser().read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise CommandError(f"{path} cannot be read: {reason}") from error
    if options["password_stdin"]:
        return _take_first_line(sys.stdin.readline())
    if not sys.stdin.isatty():
        raise CommandError("give --password-file, --password-stdin or --generate")
    first = getpass.getpass("Password: ")
    if first != getpass.getpass("Again: "):
        raise CommandError("the two passwords differ")
    return first


def _take_first_line(text: str) -> str:
    line = text.partition("\n")[0].removesuffix("\r")
    if not line:
        raise CommandError("the password is empty")
    return line
