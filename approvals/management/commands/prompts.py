"""`manage.py prompts …`: list, export, import, propose and activate versions of prompts from a terminal or a script."""

from typing import Any

from django.core.management.base import CommandParser

from approvals.governance import prompt_list, prompt_versions
from approvals.management import command

NUMBERED = {
    "activate": "is in production",
    "propose": "is proposed for production",
    "confirm": "is in production",
    "withdraw": "is not proposed any more",
}


class Command(command.Command):
    """Lists, exports, imports and activates versions of prompts."""

    help = "Change the prompts of agents."
    examples = """\
  prompts list
  prompts export hr/onboarding > onboarding.yaml     the version in production; add a number for another
  prompts import onboarding.yaml                     a new version, which no run uses yet
  prompts activate hr/onboarding 3                   in production at once; 0 is the text in the code
  prompts propose hr/onboarding 3                    an admin confirms it
  prompts label hr/onboarding 3 staging
"""

    def add_arguments(self, parser: CommandParser) -> None:
        added = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        added.add_parser("list", help="all prompts and their versions")
        export = added.add_parser("export", help="print a version as YAML")
        export.add_argument("name")
        export.add_argument("number", type=int, nargs="?")
        imported = added.add_parser("import", help="save a file as a new version")
        imported.add_argument("file", help="YAML, or - for standard input")
        for act in (*NUMBERED, "label"):
            subparser = added.add_parser(act)
            subparser.add_argument("name")
            subparser.add_argument("number", type=int)
            if act == "label":
                subparser.add_argument("label")

    def handle(self, *args: Any, **options: Any) -> None:
        act, name, number = options["act"], options.get("name", ""), options.get("number")
        match act:
            case "list":
                for view in prompt_list.list_prompts():
                    in_use = (
                        f"version {view.production}" if view.production else "the text in the code"
                    )
                    state = view.broken or f"{in_use} in production"
                    self.stdout.write(
                        f"{view.name}\t{state}\tused by {', '.join(view.agents) or 'no agent'}"
                    )
                    for version in (version for version in view.texts if version.number):
                        at = f"{version.at:%Y-%m-%d %H:%M} UTC"
                        author = version.author or "the command line"
                        labels = ", ".join(version.labels)
                        self.stdout.write(f"  {version.number}\t{at}\tby {author}\t{labels}")
            case "export":
                view = prompt_list.read_prompt(name)
                prompt = view.text(view.production if number is None else number)
                self.stdout.write(prompt_list.write_file(name, prompt), ending="")
            case "import":
                text = command.read_text(options["file"], limit=prompt_list.MAX_FILE + 1)
                file = prompt_list.read_file(text)
                number = prompt_versions.save(file.prompt, file.text, note=file.note, actor=None)
                self.stdout.write(f"Version {number} of {file.prompt} is saved.")
            case "label":
                prompt_versions.label_version(name, options["label"], number or 0, actor=None)
                self.stdout.write(f"Version {number} has the label {options['label']}.")
            case "activate":
                if number not in {
                    row.proposal.number for row in prompt_list.read_prompt(name).waiting
                }:
                    prompt_versions.propose(name, number or 0, actor=None)
                prompt_versions.confirm(name, number or 0, actor=None)
            case _:
                getattr(prompt_versions, act)(name, number, actor=None)
        if act in NUMBERED:
            self.stdout.write(f"{prompt_versions.name_version(number or 0)} {NUMBERED[act]}.")
