"""What the server of forks imports once, so that each fork starts at once. It talks to no Postgres and no broker.

Modules that read settings while they are imported are not among them, nor those that run as programs.
"""

import gc
from importlib import import_module

gc.disable()

import django  # noqa: E402

django.setup()

from pydantic_ai.messages import ModelRequest  # noqa: E402

from agents.llm.call import run_script  # noqa: E402
from agents.llm.replies import convert_provider_reply  # noqa: E402
from tests.support.scripted_agents.flows import outer  # noqa: E402

for _name in (
    *("uvicorn.loops.auto", "uvicorn.protocols.http.httptools_impl", "a2wsgi"),
    *("celery.apps.worker", "celery.concurrency.thread"),
    *("agents.web.views", "approvals.web.urls", "runtime.web.urls", "runtime.tasks"),
    *("agents.external_agent", "agents.web.api", "prometheus_client", "csp.middleware"),
    *(f"approvals.web.api.{name}" for name in ("aap", "prompts", "requests", "teamwork")),
    *("agents.effect_handler", "agents.management.commands.agents", "agents.flows.hr"),
    *("config.local.up", "config.management.commands.prepare", "config.middleware"),
    *("runtime.management.commands.sweep", "django.core.management.commands.shell"),
):
    import_module(_name)

# The first answer in a process takes long.
_reply, _usage = run_script(outer, [ModelRequest.user_text_prompt('{"turns": []}')])
convert_provider_reply(outer, _reply, usage=_usage)
gc.freeze()
gc.enable()
