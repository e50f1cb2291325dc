"""The old name of `release_run`."""

from runtime.management.commands import release_run
from runtime.management.renamed import old_name

Command = old_name("readmit", "release_run", release_run.Command)
