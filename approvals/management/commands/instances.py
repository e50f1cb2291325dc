"""`manage.py instances …`: manage agents outside. The credential of a new instance is printed once."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from approvals.decisions import external_requests
from approvals.management import command
from approvals.models import Instance
from approvals.people import instances
from runtime.ports.access import Actor


class Command(command.Command):
    """Lists, creates and ends instances, in the name of their owner."""

    help = "Let agents outside ask for approvals, end them, list them."
    examples = """\
  instances create "Deploy bot" --owner ada      print its credential, once
  instances list
  instances delete 01234567-89ab-cdef-0123-456789abcdef
"""

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACT")
        create = acts.add_parser("create", help="print the credential of a new instance, once")
        create.add_argument("name", metavar="NAME")
        create.add_argument("--owner", required=True, help="a person who may provision instances")
        delete = acts.add_parser("delete", help="end an instance and cancel its open requests")
        delete.add_argument("id", metavar="ID", type=UUID)
        acts.add_parser("list", help="the instances that have not ended")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["act"]:
            case "create":
                fields = instances.InstanceFields(name=options["name"])
                created, _ = instances.provision(fields, actor=Actor(person=options["owner"]))
                self.stdout.write(created["credential"]["token"])
            case "delete":
                count = external_requests.end_instance(instance=options["id"], actor=None)
                self.stdout.write(f"The instance {options['id']} has ended; cancelled: {count}.")
            case "list":
                for row in Instance.objects.select_related("owner").filter(deleted_at=None):
                    self.stdout.write(f"{row.id}\t{row.owner.get_username()}\t{row.name}")
