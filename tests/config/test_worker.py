"""The imports and the command line of a worker process."""

import pytest

from config import worker
from tests.support import commands

# The start of a worker without the steps that need servers.
START = """
import gc, sys
collected = []
gc.callbacks.append(lambda phase, _: collected.append("django" in sys.modules))
import runpy
sys.argv = ["config.worker", "--help"]
try:
    runpy.run_module("config.worker", run_name="__main__")
except SystemExit:
    print(any(collected))
from config.celery import app
app.loader.import_default_modules()
import agents.flows.hr, agents.llm.providers, agents.effect_handler
print(*sys.modules)
"""


def test_a_worker_imports_no_unused_code_and_collects_no_garbage_meanwhile() -> None:
    *_, collected, modules = commands.python("-c", START).stdout.splitlines()
    assert collected == "False"
    assert "agents.effect_handler" in modules.split()
    assert {
        *("config.urls", "runtime.web.api.runs", "celery.bin.celery", "prompt_toolkit"),
        *("openai", "anthropic", "scim2_client", "scim2_models"),
    }.isdisjoint(modules.split())


@pytest.mark.parametrize("given", ["--concurrency=many", "--queues", "--pool=prefork"])
def test_a_wrong_command_line_is_refused_by_name(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        worker.main([given])
    assert given.partition("=")[0] in capsys.readouterr().err
