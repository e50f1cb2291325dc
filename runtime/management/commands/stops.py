"""The old name of `kill_switch`."""

from runtime.management.commands import kill_switch
from runtime.management.renamed import old_name

Command = old_name("stops", "kill_switch", kill_switch.OldCommand)
