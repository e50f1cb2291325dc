"""`manage.py verify_run`: compare the stored data of runs with their journals."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runtime.control import verification
from runtime.core.values.texts import write_on_one_line
from runtime.errors import KeyMissing, NoSuchRun, Tampered
from runtime.management.command import parse_run_id
from runtime.store import archived_runs
from runtime.store.sealed_files import MAX_BYTES


class Command(BaseCommand):
    """Verifies one, all live or all runs."""

    help = (
        "Verify a run's journal, and compare the other stored data with it. Print one line per finding, and end"
        " with 1 if there is any."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument(
            "run", nargs="*", default=[], type=parse_run_id, metavar="RUN", help="their ids"
        )
        which.add_argument(
            "--file", type=Path, metavar="FILE", help="a copy of the file of an archived run"
        )
        which.add_argument("--all-live", action="store_true", help="every run that is not over")
        which.add_argument("--all", action="store_true", help="every run there is")
        parser.add_argument("--json", action="store_true", help="one JSON object per run")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["file"]:
            try:
                with options["file"].open("rb") as file:
                    stored = archived_runs.parse(None, file.read(MAX_BYTES + 1))
            except (OSError, Tampered, KeyMissing) as exc:
                raise CommandError(write_on_one_line(f"{options['file']}: {exc}")) from exc
            entries = f"{len(stored.entries)} entries verified, nothing found"
            self.stdout.write(f"run {stored.run} of {stored.now.agent}, {entries}")
            return
        unsound = count = 0
        for run in options["run"] or verification.list_runs(live=not options["all"]):
            try:
                verified = verification.verify(run)
            except NoSuchRun as exc:
                raise CommandError(f"there is no run {run}") from exc
            count += 1
            unsound += not verified.is_consistent
            self._print(verified, as_json=options["json"])
        if unsound:
            raise CommandError(f"{unsound} of {count} runs differ from their journals")
        if not options["json"]:
            self.stdout.write(f"{count} run{'' if count == 1 else 's'} verified, nothing found")

    def _print(self, verified: verification.Verification, *, as_json: bool) -> None:
        if as_json:
            findings = [{"subject": f.subject, "problem": f.problem} for f in verified.findings]
            removed_at = verified.removed_at.isoformat() if verified.removed_at else None
            document = {
                "run": str(verified.run),
                "status": verified.status,
                "position": verified.position,
                "findings": findings,
                "removed": verified.removed,
                "removed_at": removed_at,
            }
            self.stdout.write(json.dumps(document))
            return
        if verified.removed:
            self.stdout.write(
                f"{verified.run}: history begins at entry {verified.removed + 1};"
                f" {verified.removed} entries before it were removed on {verified.removed_at:%Y-%m-%d}"
            )
        for finding in verified.findings:
            self.stdout.write(
                write_on_one_line(f"{verified.run}: {finding.subject}: {finding.problem}")
            )
