"""One model call, from a frame's messages to an answer or a failure.

Replies of providers are streamed. The text received before a call failed is kept as evidence and never read for
calls.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.settings import ModelSettings

from agents.llm import event_loop, providers
from agents.llm.conversation_cache import conversation_of
from agents.llm.failures import (
    cut_off,
    ended,
    failure_of,
    not_asked,
    provider_text,
    too_slow,
)
from agents.llm.messages import after_cut, sum_up, to_provider, tools_of
from agents.llm.outages import Outages
from agents.llm.partial import kept_every, received
from agents.llm.plan_reminder import reminder
from agents.llm.rate_limits import Permit, RateLimits, TooLong, Wait
from agents.llm.received import from_person, from_provider
from agents.llm.replies import whole
from agents.llm.script_player import run_script, script_summary
from agents.sdk.sentences import describe_exception
from agents.sdk.spec import AgentSpec
from runtime.core.enums import FailureCause
from runtime.core.limits import plain
from runtime.core.machine.calls.retries import longest_wait
from runtime.errors import KeyMissing
from runtime.keyring import held
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

# An administrator must put a missing key back: wait as long as the engine does between attempts.
KEY_WAIT = 60.0
KEEP_SECONDS = 2.0  # between two parts of a reply that are kept against the loss of this worker


def call_model(
    agent: AgentSpec,
    request: ModelRequest,
    deliver: Callable[[Outcome], None],
    rate_limits: RateLimits | None = None,
    outages: Outages | None = None,
    keep: Callable[[PartialReply], None] | None = None,
) -> Abort:
    """Ask the agent's model what to do next, within the request's deadline. Returns at once, never raises.

    The returned function ends the call; its outcome is delivered in any case. `rate_limits` limit the rate of all the
    installation's workers together; `outages` knows which models are out of order. `keep` gets the part of the reply
    that was received, every few seconds. A script has replied on return, and so has a person.
    """
    if request.given is not None or providers.is_scripted(agent):
        deliver(_at_once(agent, request))
        return _over
    call = _Call(agent, request, rate_limits, outages or Outages(), keep)
    try:
        if (answer := _own_summary(agent, request)) is not None:
            deliver(answer)
            return _over
        conversation = _conversation(agent, request)
        model = providers.model_of(call.model)
        wait = call.acquire()
    except Exception as exc:
        deliver(call.failure(exc))
        return _over
    if wait is not None:
        deliver(wait)
        return _over
    return event_loop.start(lambda stop: call.make(model, conversation, stop, deliver))


def _at_once(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFailure:
    """Read the reply that a person gave, or run the agent's script, instead of calling a model."""
    try:
        if request.given is not None:
            return from_person(agent, request.given)
        if (answer := _own_summary(agent, request)) is not None:
            return answer
        reply, usage = run_script(agent, _conversation(agent, request), request.instructions)
        name = agent.model_name
        as_text = request.summary or request.inquiry is not None
        return from_provider(agent, reply, model=name, summary=as_text, usage=usage)
    except Exception as exc:
        if request.given is not None:
            return _unread(agent, request, exc)
        return _Call(agent, request, None, Outages()).failure(exc)


def _unread(agent: AgentSpec, request: ModelRequest, exc: Exception) -> ModelFailure:
    """Return the failure to read the reply that a person gave. No model was called, so none is blamed."""
    if isinstance(exc, KeyMissing):
        return _waits_for_key(agent, request, exc)
    said = type(exc).__name__ if agent.keeps_secrets else describe_exception(exc)
    log.warning("The reply given to %s in run %s cannot be read: %s", agent.name, request.run, said)
    error = plain(f"the reply that a person gave cannot be read: {said}")
    return ModelFailure(error=error, cause=FailureCause.REQUEST)


def _waits_for_key(agent: AgentSpec, request: ModelRequest, exc: KeyMissing) -> ModelFailure:
    log.error("Model call of %s in run %s: waits: %s", agent.name, request.run, exc)
    return ModelFailure(
        error=str(exc), retryable=True, retry_after=KEY_WAIT, cause=FailureCause.WORKER
    )


def _own_summary(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | None:
    """Return the summary by the agent's own function, if a summary is requested and the agent has such a function."""
    if request.memory_tokens:
        return script_summary(agent, request) if providers.is_scripted(agent) else None
    if not (request.summary and agent.compaction and agent.compaction.summarise):
        return None
    text = agent.compaction.summarise(whole(request.messages, request.calls))
    return ModelAnswer(reply=None, text=held.sealed_text(text) if agent.seals_texts else text)


def _conversation(agent: AgentSpec, request: ModelRequest) -> list[ModelMessage]:
    if (
        request.inquiry is not None
    ):  # it is asked once, beside the conversation that the cache knows
        return to_provider(agent, request.messages, [], request.instructions, request.calls)
    conversation = conversation_of(
        agent, request.run, request.frame, request.messages, request.instructions, request.calls
    )
    if request.summary:
        conversation.append(sum_up(agent, request.instructions, request.memory_tokens))
    return [
        *conversation,
        *after_cut(agent, request.cut, request.instructions),
        *reminder(agent, request.todo, request.instructions),
    ]


def chosen(agent: AgentSpec, wanted: str, outages: Outages) -> tuple[str, str]:
    """Return the model to ask, and the next one or an empty text.

    `wanted` is the model that the engine names once the attempts at the previous one are used up. It is ignored if it
    is no longer configured.
    """
    models = providers.models_of(agent)
    if wanted not in models:
        wanted = outages.choose(models)
    elif wanted != models[0]:
        outages.begin(models[models.index(wanted) - 1])
    place = models.index(wanted)
    return models[place], next(iter(models[place + 1 :]), "")


class CutOff(Exception):
    """The stream ended before its reply was complete."""


class _Call:
    """One running model call. `_stream` is its reply so far."""

    def __init__(
        self,
        agent: AgentSpec,
        request: ModelRequest,
        rate_limits: RateLimits | None,
        outages: Outages,
        keep: Callable[[PartialReply], None] | None = None,
    ) -> None:
        self.model, self._fallback = chosen(agent, request.model, outages)
        self._outages = outages
        self._rate_limits = rate_limits
        self._permit: Permit | None = None
        self._agent = agent
        self._request = request
        self._stream: StreamedResponse | None = None
        self._keep = keep

    def acquire(self) -> RateLimited | ModelFailure | None:
        """Return None if the model may be called now, a failure if its fallback is to be called instead."""
        if self._rate_limits is None:
            return None
        number = self._request.queue_number
        longest = longest_wait(self._agent.retry) if self._fallback else math.inf
        match self._rate_limits.acquire(self.model, number, longest):
            case Wait() as wait:
                return RateLimited(
                    model=self.model, until=wait.until, queue_number=wait.queue_number
                )
            case TooLong() as pause:
                return self._complete(not_asked(self.model, pause.seconds))
            case permit:
                self._permit = permit
                return None

    async def make(
        self,
        model: Model,
        conversation: list[ModelMessage],
        stop: event_loop.Stop,
        deliver: Callable[[Outcome], None],
    ) -> None:
        try:
            exchange = self._exchange(model, conversation)
            reply = await event_loop.within(self._request.deadline, exchange, stop)
            outcome = self._answer(reply)
        except Exception as exc:
            outcome = self.failure(exc)
        await self._report(outcome)
        deliver(outcome)

    def _answer(self, reply: ModelResponse) -> ModelAnswer | ModelFailure:
        return from_provider(self._agent, reply, model=self.model, summary=self._as_text)

    @property
    def _as_text(self) -> bool:
        """Whether the reply is read as text, even if the agent's result is typed."""
        return self._request.summary or self._request.inquiry is not None

    async def _report(self, outcome: ModelAnswer | ModelFailure) -> None:
        """Tell the provider's answer to the rate limits and the outages, which other calls read."""
        if isinstance(outcome, ModelAnswer):
            self._outages.end(self.model)
        if self._rate_limits is None or self._permit is None:
            return
        if isinstance(outcome, ModelAnswer):
            if self._permit.is_limited:
                await asyncio.to_thread(self._rate_limits.on_success, self.model, self._permit)
        elif outcome.cause is FailureCause.LIMIT or (
            outcome.retry_after and outcome.cause is FailureCause.PROVIDER
        ):
            await asyncio.to_thread(
                self._rate_limits.on_rejected, self.model, self._permit, outcome.retry_after
            )

    def failure(self, exc: Exception) -> ModelFailure:
        """Return the failure that an exception of the call means."""
        match exc:
            case KeyMissing():
                failure = _waits_for_key(self._agent, self._request, exc)
            case TimeoutError():
                failure = too_slow(self.model, self._request.deadline)
            case event_loop.Stopped():
                failure = ended(self.model)
            case CutOff():
                failure = cut_off(self.model)
            case _:
                failure = self._raised(exc)
        return self._complete(failure)

    async def _exchange(self, model: Model, conversation: list[ModelMessage]) -> ModelResponse:
        async with model_request_stream(
            model,
            conversation,
            model_request_parameters=tools_of(
                self._agent,
                summary=self._request.summary,
                as_text=self._request.inquiry is not None,
            ),
            model_settings=_settings(self._agent, self._request),
        ) as stream:
            self._stream = stream
            async with kept_every(KEEP_SECONDS, self.received, self._keep):
                async for _ in stream:
                    pass
        reply = stream.get()
        if not _whole(reply):
            raise CutOff
        return reply

    def _complete(self, failure: ModelFailure) -> ModelFailure:
        part = self.received()
        return replace(
            failure,
            model=self.model,
            fallback=self._fallback,
            partial=part.text,
            tokens=part.tokens,
            usage=part.usage,
            cost=part.cost,
        )

    def received(self) -> PartialReply:
        """Return the part received so far; the text is at most as long as an error."""
        with suppress(Exception):
            if self._stream is not None:
                return received(self._agent, self._stream.get(), self.model)
        return PartialReply(model=self.model)

    def _raised(self, exc: Exception) -> ModelFailure:
        """Make a failure of an exception. A script would raise it again; a provider may succeed next time."""
        scripted = providers.is_scripted(self._agent)
        if not scripted:
            failure = failure_of(exc, model=self.model)
            if not self._agent.keeps_secrets:  # a provider may quote the request
                failure = replace(failure, said=providers.without_keys(provider_text(exc)))
        else:
            said = type(exc).__name__ if self._agent.keeps_secrets else describe_exception(exc)
            failure = ModelFailure(error=said, cause=FailureCause.REQUEST)
        # A traceback may quote the request: where there may be secrets in it, the failure has to do.
        log.warning(
            "Model call of %s in run %s: failed: %s",
            self._agent.name,
            self._request.run,
            failure.error,
            exc_info=None if self._agent.keeps_secrets or not scripted else exc,
        )
        return failure


def _settings(agent: AgentSpec, request: ModelRequest) -> ModelSettings:
    settings = ModelSettings(timeout=request.deadline)
    if request.inquiry is not None:
        settings["tool_choice"] = (
            "none"  # the tools stay in the request: replies in it have called them
        )
    if agent.temperature is not None:
        settings["temperature"] = agent.temperature
    if (most := request.memory_tokens or agent.max_tokens) is not None:
        settings["max_tokens"] = most
    return settings


def _whole(reply: ModelResponse) -> bool:
    """Say whether the provider gave a reason to stop. The client invents one if there is none."""
    refused = reply.finish_reason == "content_filter"
    return refused or bool((reply.provider_details or {}).get("finish_reason"))


def _over() -> None:
    """Do nothing: the call has ended or ends at once."""
