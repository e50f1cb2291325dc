"""One model call, from a frame's messages to an answer or a failure.

Replies of providers are streamed. The text received before a call failed is kept as evidence and never read for
calls.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from agents.llm import event_loop, providers
from agents.llm.clients.models import find_refused
from agents.llm.failures import (
    UnusableReply,
    derive_failure,
    extract_provider_text,
    make_failure,
    mend,
    require_whole,
)
from agents.llm.messages import build_endings, build_model_tools, convert_messages, fit, to_provider
from agents.llm.rate_limits import Permit, RateLimits, WaitTooLong
from agents.llm.replies import convert_person_reply, convert_provider_reply, restore_replies
from agents.sdk.conditions import describe_exception, run_code
from agents.sdk.spec import AgentSpec
from runtime.core.run.retries import compute_longest_wait
from runtime.core.values.enums import FailureCause
from runtime.core.values.json_values import copy_value
from runtime.core.values.limits import MAX_ERROR, MAX_SUMMARY
from runtime.core.values.texts import clean_text
from runtime.errors import KeyMissing
from runtime.keyring import sealing
from runtime.ports.effects import (
    Abort,
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
    PartialReply,
    RateLimited,
)

log = logging.getLogger(__name__)

_FAILED = "Model call of %s in run %s: failed: %s"

# An administrator must put a missing key back: wait as long as the engine does between attempts.
KEY_WAIT = 60.0
KEEP_SECONDS = 2.0  # between two parts of a reply that are kept against the loss of this worker


def call_model(
    agent: AgentSpec,
    request: ModelRequest,
    deliver: Callable[[Outcome], None],
    rate_limits: RateLimits | None = None,
    outages: providers.Outages | None = None,
    keep: Callable[[PartialReply], None] | None = None,
) -> Abort:
    """Ask the agent's model what to do next, within the request's deadline. Returns at once, never raises.

    The returned function ends the call; its outcome is delivered in any case. `rate_limits` limit the rate of all the
    installation's workers together; `outages` knows which models are out of order. `keep` gets the part of the reply
    that was received, every few seconds. A script has replied on return, and so has a person.
    """
    if request.fork_reply is not None or providers.is_scripted(agent):
        outcome: Outcome | None = _answer_at_once(agent, request)
    else:
        call = _ModelCall(agent, request, rate_limits, outages or providers.Outages(), keep)
        outcome = call.prepare()
    if outcome is None:
        return event_loop.start_call(lambda stop: call.make(stop, deliver))
    deliver(outcome)
    return lambda: None  # it has ended


def _answer_at_once(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFailure:
    """Read the reply that a person gave, or run the agent's script, instead of calling a model."""
    try:
        if request.fork_reply is not None:
            return convert_person_reply(agent, request.fork_reply)
        if (answer := _make_own_summary(agent, request)) is not None:
            return answer
        reply, usage = run_script(agent, _build_conversation(agent, request), request.instructions)
        as_text = _is_read_as_text(request)
        return convert_provider_reply(
            agent, reply, model=agent.model_name, summary=as_text, usage=usage
        )
    except KeyMissing as exc:
        failure = _make_key_failure(agent, request, exc)
    except Exception as exc:
        # No model is to blame if a script failed, or the reply that a person gave.
        error = type(exc).__name__ if agent.keeps_secrets else describe_exception(exc)
        if request.fork_reply:
            error = clean_text(f"the reply that a person gave cannot be read: {error}")
        # A traceback may quote the request: where there may be secrets in it, it is left out.
        cause = None if agent.keeps_secrets or request.fork_reply else exc
        log.warning(_FAILED, agent.name, request.run, error, exc_info=cause)
        is_late = isinstance(exc, TimeoutError) and not request.fork_reply  # a script may try again
        failure = make_failure(error, FailureCause.TIME if is_late else FailureCause.REQUEST)
    return failure if request.fork_reply else replace(failure, model=agent.model_name)


def _make_key_failure(agent: AgentSpec, request: ModelRequest, exc: KeyMissing) -> ModelFailure:
    log.error("Model call of %s in run %s: waits: %s", agent.name, request.run, exc)
    return make_failure(str(exc), FailureCause.WORKER, KEY_WAIT)


def _make_own_summary(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | None:
    """Return the summary by the agent's own function, if a summary is requested and the agent has such a function."""
    if request.memory_tokens:
        if not providers.is_scripted(agent):
            return None
        # In place of the script: the end of what the earlier runs said.
        memory = request.messages[0].get("memory", ())
        text = " ".join(entry["text"] for entry in memory if entry["text"])
        text = text[-request.memory_tokens * providers.CHARACTERS :] or "Nothing is left of it."
        return ModelAnswer(reply=None, text=text, model=agent.model_name, cost=0)
    if not (request.summary and agent.compaction and agent.compaction.summarise):
        return None
    messages = map(copy_value, restore_replies(request.messages, request.calls))
    text = run_code(agent.compaction.summarise, tuple(messages))
    is_sealed = agent.seals_texts or sealing.is_token(text)
    return ModelAnswer(reply=None, text=sealing.seal_held_text(text) if is_sealed else text)


def run_script(
    agent: AgentSpec, conversation: list[ModelMessage], instructions: str = ""
) -> tuple[ModelResponse, RequestUsage]:
    """Return the script's reply and its tokens: those it states, or an estimate. Code uses no tokens."""
    if agent.model is None:
        raise TypeError(f"{agent.name} has no script")
    info = _build_script_arguments(agent)
    info = replace(info, instructions=instructions) if instructions else info
    reply = run_code(agent.model, conversation, info)
    if not isinstance(reply, ModelResponse):
        raise TypeError(f"the script replied with a {type(reply).__name__}")
    usage = reply.usage
    if not (agent.is_code or usage.input_tokens or usage.has_values()):
        usage = RequestUsage(
            input_tokens=providers.estimate_request(conversation),
            output_tokens=providers.estimate_tokens([reply]),
        )
    return reply, usage


@lru_cache(256)
def _build_script_arguments(agent: AgentSpec) -> AgentInfo:
    """Return the arguments of a script that follow the conversation."""
    tools = build_model_tools(agent)
    return AgentInfo(
        function_tools=tools.function_tools,
        allow_text_output=tools.allow_text_output,
        output_tools=tools.output_tools,
        model_settings=None,
        model_request_parameters=tools,
        instructions=agent.instructions,
    )


def _build_conversation(agent: AgentSpec, request: ModelRequest) -> list[ModelMessage]:
    if request.inquiry is not None:  # asked once, besides the conversation that the cache knows
        return to_provider(agent, request.messages, [], request.instructions, request.calls)
    conversation = convert_messages(
        agent, request.run, request.frame, request.messages, request.instructions, request.calls
    )
    return conversation + build_endings(agent, request)


@dataclass(slots=True)
class _ModelCall:
    """One running model call. `snapshot` returns its reply so far."""

    agent: AgentSpec
    request: ModelRequest
    rate_limits: RateLimits | None
    outages: providers.Outages
    keep: Callable[[PartialReply], None] | None
    model: str = ""
    fallback: str = ""
    client: Model = field(init=False)
    conversation: list[ModelMessage] = field(init=False)
    request_tokens: int = 0  # an estimate
    permit: Permit | None = None
    refused: frozenset[str] = frozenset()  # settings that its server refuses
    snapshot: Callable[[], ModelResponse] = field(default=lambda: ModelResponse(parts=[]))

    def prepare(self) -> Outcome | None:
        """Return None if the model may be called now."""
        agent, request = self.agent, self.request
        self.model, self.fallback = providers.choose_models(agent, request.model, self.outages)
        try:
            if (answer := _make_own_summary(agent, request)) is not None:
                return answer
            self.conversation = _build_conversation(agent, request)
            self.refused = providers.list_refused_settings(self.model)
            self.client = providers.take_next_client(self.model, self.refused)
            if self.rate_limits is None:
                return None
            longest = compute_longest_wait(self.agent.retry) if self.fallback else math.inf
            match self.rate_limits.acquire(self.model, self.request.queue_number, longest):
                case RateLimited() as wait:
                    return wait
                case WaitTooLong(seconds=seconds):
                    error = f"{self.model} was not asked: its provider wants fewer requests"
                    return self._complete(make_failure(error, FailureCause.LIMIT, seconds))
                case permit:
                    self.permit = permit
                    return None
        except Exception as exc:
            return self._failure(exc)

    async def make(self, stop: event_loop.Stop, deliver: Callable[[Outcome], None]) -> None:
        """Call the model, and deliver its answer or a failure."""
        outcome: ModelAnswer | ModelFailure
        try:
            self.conversation = fit(self.conversation)
            reply = await event_loop.await_call(self.request.deadline, self._exchange(), stop)
            reply = mend(replace(reply, usage=providers.complete_usage(reply, self.request_tokens)))
            as_text = _is_read_as_text(self.request)
            # A summary of the memory is as long as it may be: its beginning is worth keeping.
            require_whole(reply, as_text=as_text, may_be_cut=self.request.memory_tokens > 0)
            answer = convert_provider_reply(self.agent, reply, model=self.model, summary=as_text)
            if self.request.summary and len(answer.text) > MAX_SUMMARY:
                raise UnusableReply(f"wrote a summary of more than {MAX_SUMMARY} characters")
            outcome = replace(answer, fallback=self.fallback)
        except Exception as exc:
            outcome = self._failure(exc)
        await self._report(outcome)
        deliver(outcome)

    async def _report(self, outcome: ModelAnswer | ModelFailure) -> None:
        """Tell the provider's answer to the rate limits and the outages, which other calls read."""
        if isinstance(outcome, ModelAnswer):
            self.outages.end(self.model)
        limits, permit = self.rate_limits, self.permit
        if limits is None or permit is None:
            return
        if isinstance(outcome, ModelAnswer):
            if permit.is_limited:
                await asyncio.to_thread(limits.on_success, self.model, permit)
        elif outcome.cause is FailureCause.LIMIT or (
            outcome.cause is FailureCause.PROVIDER and outcome.retry_after
        ):
            await asyncio.to_thread(limits.on_rejected, self.model, permit, outcome.retry_after)

    def _failure(self, exc: Exception) -> ModelFailure:
        """Return the failure that an exception of the call means."""
        match exc:
            case KeyMissing():
                failure = _make_key_failure(self.agent, self.request, exc)
            case TimeoutError():
                error = f"{self.model} did not answer within {self.request.deadline:g} s"
                failure = make_failure(error, FailureCause.TIME)
            case event_loop.Stopped():
                error = f"the call of {self.model} was ended before it answered"
                failure = make_failure(error, FailureCause.REQUEST)
            case _:
                failure = derive_failure(exc, model=self.model)
                log.warning(_FAILED, self.agent.name, self.request.run, failure.error)
                if not self.agent.keeps_secrets:  # a provider may quote the request
                    text = providers.without_keys(extract_provider_text(exc))
                    failure = replace(failure, provider_text=text)
        failure = self._complete(failure)
        if isinstance(exc, UnusableReply):
            text = text_to_store(self.agent, exc.text) if exc.text else failure.partial
            # The next attempt learns of a reply that was too long, not of one that was refused.
            tokens = failure.usage.get("output_tokens", 0) if exc.is_cut else 0
            failure = replace(failure, partial=text, tokens=tokens)
        return failure

    async def _exchange(self) -> ModelResponse:
        """Return the reply. Call the model again without a setting that its server refuses, once for each."""
        while True:
            try:
                reply = await self._receive()
            except ModelAPIError as exc:
                setting = find_refused(exc, self.client, self.refused)
                if setting is None:
                    raise
                self.refused |= {setting}
                self.client = providers.take_next_client(self.model, self.refused)
            else:
                providers.remember_refused(self.model, self.refused)
                return reply

    async def _receive(self) -> ModelResponse:
        agent, request = self.agent, self.request
        tools = build_model_tools(
            agent, summary=request.summary, as_text=request.inquiry is not None
        )
        self.request_tokens = providers.estimate_request(
            self.conversation, tools.tool_defs.values()
        )
        settings = ModelSettings(timeout=request.deadline)
        if request.inquiry is not None:
            # The tools stay: replies in the request have called them.
            settings["tool_choice"] = "none"
        if agent.temperature is not None:
            settings["temperature"] = agent.temperature
        if (limit := request.memory_tokens or agent.max_tokens) is not None:
            settings["max_tokens"] = limit
        options: Any = {"model_request_parameters": tools, "model_settings": settings}
        if not providers.can_stream_replies(self.model):
            reply = await model_request(self.client, self.conversation, **options)
            self.snapshot = lambda: reply
            return reply
        async with model_request_stream(self.client, self.conversation, **options) as stream:
            self.snapshot = stream.get
            keeping = asyncio.ensure_future(self._keep_parts())
            try:
                async for _ in stream:
                    pass
            finally:
                keeping.cancel()
        return stream.get()

    async def _keep_parts(self) -> None:
        """Hand on the received part of the reply every few seconds, if it has grown."""
        tokens = 0
        while self.keep is not None:
            await asyncio.sleep(KEEP_SECONDS)
            reply = self._received()
            if reply.tokens > tokens:
                tokens = reply.tokens
                self.keep(reply)

    def _complete(self, failure: ModelFailure) -> ModelFailure:
        reply = self._received()
        return replace(
            failure,
            model=self.model,
            fallback=self.fallback,
            partial=reply.text,
            tokens=reply.tokens,
            usage=reply.usage,
            cost=reply.cost,
        )

    def _received(self) -> PartialReply:
        """Return the part of the reply received so far.

        Its tokens are estimated; its usage is at least as much as the provider reported.
        """
        with suppress(Exception):
            reply = mend(self.snapshot())
            if reply.parts or reply.provider_details or reply.usage.has_values():
                used = providers.complete_usage(reply, self.request_tokens, is_partial=True)
                text = reply.text or ""
                return PartialReply(
                    text=text_to_store(self.agent, text),
                    tokens=-(-len(text) // providers.CHARACTERS),
                    usage=providers.build_usage_counts(used),
                    cost=providers.compute_cost(replace(reply, usage=used)),
                    model=self.model,
                )
        return PartialReply(model=self.model)


def text_to_store(agent: AgentSpec, text: str) -> str:
    """Return at most MAX_ERROR characters of a reply, sealed if they may say what a held text says, or are one."""
    text = clean_text(text)
    is_sealed = agent.seals_texts or sealing.is_token(text)
    return sealing.seal_held_text(text, MAX_ERROR) if is_sealed else text


def _is_read_as_text(request: ModelRequest) -> bool:
    """Say whether the reply is read as text, even if the agent's result is typed."""
    return request.summary or request.inquiry is not None
