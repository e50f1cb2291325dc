"""The imports of a process at its start: after a crash of all processes, runs wait for them."""

import pytest

from tests.support import commands

# It takes as long to import as all other modules of a worker, and only creating accounts needs it.
SCIM = ("scim2_client", "scim2_models", "scim2_server")


@pytest.mark.parametrize("module", ["config.local.up", "agents.flows.hr"])
def test_the_scim_client_is_imported_only_when_needed(module: str) -> None:
    told = f"import {module}, sys; print([name for name in {SCIM} if name in sys.modules])"
    done = commands.python("-c", told)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
