"""What the server of forks imports once, so that each loop starts at once. It talks to no Postgres and no broker."""

import gc

import django

django.setup()

from pydantic_ai.messages import ModelRequest  # noqa: E402

import agents.effect_handler  # noqa: E402, F401
import runtime.tasks  # noqa: E402, F401
from agents.llm.call import run_script  # noqa: E402
from agents.llm.replies import from_provider  # noqa: E402
from tests.support.scripted_agents.flows import outer  # noqa: E402

# The first answer in a process takes long.
_reply, _usage = run_script(outer, [ModelRequest.user_text_prompt('{"turns": []}')])
from_provider(outer, _reply, usage=_usage)
gc.freeze()
