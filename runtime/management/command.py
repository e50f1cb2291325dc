"""What commands share: about runs an id, an act with a reason and the list of old runs; about triggers their acts."""

import json
from abc import ABC, abstractmethod
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper

from runtime.core.values.errors import CoreError
from runtime.errors import Forbidden, InvalidInput, NoSuchRun, RequestError, RuntimeFault
from runtime.ports.access import Actor
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import changes, listing
from runtime.upkeep.retention import OldRuns

CHANGES = {"pause": changes.pause, "resume": changes.resume, "end": changes.end_trigger}


def parse_run_id(text: str) -> UUID:
    """Parse the id of a run. Raise ArgumentTypeError."""
    try:
        return UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not the id of a run") from None


class AgainCommand(BaseCommand):
    """A command that calls `act` with run, reason and actor, and reports `outcome`. `who` is the help of `--as`."""

    act: ClassVar[Callable[..., object]]
    who: ClassVar[str]
    outcome: ClassVar[str]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", type=parse_run_id, metavar="RUN", help="its id")
        parser.add_argument("--as", dest="name", required=True, metavar="NAME", help=self.who)
        parser.add_argument("--reason", required=True, metavar="WHY", help="kept with the run")

    def handle(self, *args: Any, **options: Any) -> None:
        run, actor = options["run"], Actor(person=options["name"])
        try:
            self.act(run=run, reason=options["reason"], actor=actor)
        except NoSuchRun as exc:
            raise CommandError(f"{options['name']} cannot read a run {run}") from exc
        except Forbidden as exc:
            raise CommandError(exc.detail) from exc
        except InvalidInput as exc:
            raise CommandError(f"the reason {exc.detail}") from exc
        except (RequestError, RuntimeFault, CoreError) as exc:
            raise CommandError(f"run {run} stays as it is: {exc}") from exc
        self.stdout.write(f"Run {run} {self.outcome}.")


def write_groups(stdout: OutputWrapper, groups: list[OldRuns]) -> int:
    """Write a line for each group, and return how many runs there are."""
    for group in groups:
        stdout.write(
            f"{group.agent} {group.status}: {group.runs} runs older than {group.days} days,"
            f" the first of {group.earliest:%Y-%m-%d}"
        )
    return sum(group.runs for group in groups)


class TriggerCommand(BaseCommand, ABC):
    """Makes, lists and changes triggers of one kind."""

    kind: TriggerKind
    examples: str
    shows: str  # what `show` writes

    def add_arguments(self, parser: CommandParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.epilog = self.examples
        noun = self.kind.noun
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        self.add_act(acts, "list", f"list the {noun}s that the person may read")
        self.add_act(acts, "show", f"show its {self.shows}", of_one=True)
        self.add_definition(self.add_act(acts, "add", f"make a {noun} that the person owns"))
        change = self.add_act(acts, "change", "replace all that it says", of_one=True)
        self.add_definition(change)
        for act in CHANGES:
            self.add_act(acts, act, f"{act} a {noun}", of_one=True)
        self.add_own_acts(acts)

    def add_act(self, acts: Any, name: str, text: str, *, of_one: bool = False) -> CommandParser:
        """Add an act of a person, on one schedule or trigger or in general."""
        parser: CommandParser = acts.add_parser(name, help=text)
        if of_one:
            parser.add_argument("id", metavar="ID")
        parser.add_argument(
            "--as",
            dest="actor",
            required=True,
            metavar="NAME",
            help="who does it, with their rights",
        )
        return parser

    @abstractmethod
    def add_definition(self, parser: CommandParser) -> None:
        """Add the arguments of a definition."""

    @abstractmethod
    def add_own_acts(self, acts: Any) -> None:
        """Add the acts that only this kind has."""

    @abstractmethod
    def read_definition(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the definition in these options."""

    @abstractmethod
    def list_columns(self, row: TriggerRow) -> tuple[str, ...]:
        """Return what `list` writes of a row after its id and state."""

    @abstractmethod
    def show(self, view: listing.TriggerView) -> None:
        """Write one schedule or trigger."""

    @abstractmethod
    def act(self, act: str, id: UUID, actor: Actor, options: dict[str, Any]) -> str:
        """Carry out an act that only this kind has, and return what to write."""

    def handle(self, *args: Any, **options: Any) -> None:
        act = options["act"]
        try:
            actor = Actor(person=options["actor"])
            match act:
                case "list":
                    rows, cut = listing.read_list(self.kind, actor)
                    for row in rows:
                        words = (str(row.id), row.problem or row.state, *self.list_columns(row))
                        self.stdout.write("\t".join(words))
                    if cut:
                        self.stderr.write(f"Only {len(rows)} {self.kind.noun}s are listed.")
                case "add":
                    sent = self.read_definition(options)
                    self.stdout.write(f"Made: {changes.create(self.kind, sent=sent, actor=actor)}")
                case "show":
                    self.show(listing.read_one(self.kind, self._id(options), actor))
                case "change":
                    sent = self.read_definition(options)
                    changes.change(self.kind, id=self._id(options), sent=sent, actor=actor)
                    self.stdout.write("Done: change")
                case "pause" | "resume" | "end":
                    CHANGES[act](self.kind, id=self._id(options), actor=actor)
                    self.stdout.write(f"Done: {act}")
                case _:
                    self.stdout.write(self.act(act, self._id(options), actor, options))
        except InvalidInput as problem:
            raise CommandError(problem.all_of_it) from problem
        except (RequestError, RuntimeFault) as problem:
            raise CommandError(str(problem)) from problem

    def _id(self, options: dict[str, Any]) -> UUID:
        try:
            return UUID(options["id"])
        except ValueError as exc:
            raise CommandError(f"{options['id']!r} is not the id of a {self.kind.noun}") from exc


def read_json(text: str, label: str) -> Any:
    """Return the JSON of an argument. Raise CommandError."""
    try:
        return json.loads(text)
    except ValueError as exc:
        raise CommandError(f"{label} is not JSON: {exc}") from exc
