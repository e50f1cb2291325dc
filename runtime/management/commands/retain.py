"""The old name of `apply_retention`."""

from runtime.management.commands import apply_retention
from runtime.management.renamed import old_name

Command = old_name("retain", "apply_retention", apply_retention.Command)
