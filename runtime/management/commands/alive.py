"""The old name of `healthcheck`."""

from runtime.management.commands import healthcheck
from runtime.management.renamed import old_name

Command = old_name("alive", "healthcheck", healthcheck.Command)
