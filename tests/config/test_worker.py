"""The imports and the command line of a worker process."""

import subprocess
import sys

import pytest

from config import worker
from config.env.environment import ROOT

# The start of a worker without the steps that need servers.
START = """
import sys
from config.worker import app
app.loader.import_default_modules()
import agents.flows.hr, agents.llm.providers, agents.effect_handler
print(*sys.modules)
"""


def test_a_worker_imports_no_pages_and_no_unused_clients() -> None:
    said = subprocess.run(
        [sys.executable, "-c", START], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "agents.effect_handler" in said
    assert {
        *("config.urls", "runtime.web.api.runs", "celery.bin.celery", "prompt_toolkit"),
        *("openai", "anthropic"),
    }.isdisjoint(said)


@pytest.mark.parametrize("given", ["--concurrency=many", "--queues", "--pool=prefork"])
def test_a_wrong_command_line_is_refused_by_name(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        worker.main([given])
    assert given.partition("=")[0] in capsys.readouterr().err
