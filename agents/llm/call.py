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

from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agents.llm import event_loop, providers
from agents.llm.clients.models import find_refused
from agents.llm.conversation_cache import conversation_of
from agents.llm.failures import failure_of, make_failure, provider_text
from agents.llm.fitting import fit
from agents.llm.messages import after_cut, reminder, sum_up, to_provider, tools_of
from agents.llm.outages import Outages
from agents.llm.partial import kept, kept_every, received
from agents.llm.rate_limits import Permit, RateLimits, TooLong, Wait
from agents.llm.received import from_person, from_provider
from agents.llm.replies import whole
from agents.llm.script_player import run_script, script_summary
from agents.llm.token_counts import complete_usage, estimate_request
from agents.llm.whole_replies import Unusable, mend, require_whole
from agents.sdk.sentences import describe_exception
from agents.sdk.spec import AgentSpec
from runtime.core.enums import FailureCause
from runtime.core.limits import MAX_SUMMARY, plain
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
    outcome: Outcome | None
    try:
        if (outcome := _own_summary(agent, request)) is None:
            conversation = _conversation(agent, request)
            model = providers.model_of(call.model)
            outcome = call.acquire()
    except Exception as exc:
        outcome = call.failure(exc)
    if outcome is None:
        return event_loop.start(lambda stop: call.make(model, conversation, stop, deliver))
    deliver(outcome)
    return _over


def _at_once(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFailure:
    """Read the reply that a person gave, or run the agent's script, instead of calling a model."""
    try:
        if request.given is not None:
            return from_person(agent, request.given)
        if (answer := _own_summary(agent, request)) is not None:
            return answer
        reply, usage = run_script(agent, _conversation(agent, request), request.instructions)
        as_text = _wants_text(request)
        return from_provider(agent, reply, model=agent.model_name, summary=as_text, usage=usage)
    except Exception as exc:
        return _failed_at_once(agent, request, exc)


def _failed_at_once(agent: AgentSpec, request: ModelRequest, exc: Exception) -> ModelFailure:
    """Return the failure of a script, or of the reply that a person gave. Only a timeout may pass."""
    model = "" if request.given else agent.model_name
    if isinstance(exc, KeyMissing):
        return replace(_waits_for_key(agent, request, exc), model=model)
    error = type(exc).__name__ if agent.keeps_secrets else describe_exception(exc)
    if request.given:  # no model was called, so none is blamed
        error = plain(f"the reply that a person gave cannot be read: {error}")
    _log_failure(agent, request, error, None if agent.keeps_secrets or request.given else exc)
    is_late = isinstance(exc, TimeoutError) and not request.given  # a script may try again
    cause = FailureCause.TIME if is_late else FailureCause.REQUEST
    return replace(make_failure(error, cause), model=model)


def _log_failure(
    agent: AgentSpec, request: ModelRequest, error: str, exc: Exception | None = None
) -> None:
    """Log a failure. A traceback may quote the request: where there may be secrets in it, it is left out."""
    log.warning(
        "Model call of %s in run %s: failed: %s", agent.name, request.run, error, exc_info=exc
    )


def _waits_for_key(agent: AgentSpec, request: ModelRequest, exc: KeyMissing) -> ModelFailure:
    log.error("Model call of %s in run %s: waits: %s", agent.name, request.run, exc)
    return make_failure(str(exc), FailureCause.WORKER, KEY_WAIT)


def _own_summary(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | None:
    """Return the summary by the agent's own function, if a summary is requested and the agent has such a function."""
    if request.memory_tokens:
        return script_summary(agent, request) if providers.is_scripted(agent) else None
    if not (request.summary and agent.compaction and agent.compaction.summarise):
        return None
    text = agent.compaction.summarise(whole(request.messages, request.calls))
    return ModelAnswer(reply=None, text=held.sealed_text(text) if agent.seals_texts else text)


def _conversation(agent: AgentSpec, request: ModelRequest) -> list[ModelMessage]:
    if request.inquiry is not None:  # asked once, besides the conversation that the cache knows
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


class _Call:
    """One running model call. `_snapshot` returns its reply so far."""

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
        self._snapshot: Callable[[], ModelResponse] | None = None
        self._keep = keep
        self._request_tokens = 0  # an estimate

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
                error = f"{self.model} was not asked: its provider wants fewer requests"
                return self._complete(make_failure(error, FailureCause.LIMIT, pause.seconds))
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
        outcome: ModelAnswer | ModelFailure
        try:
            exchange = self._exchange(model, fit(conversation))
            reply = await event_loop.within(self._request.deadline, exchange, stop)
            outcome = self._answer(reply)
        except Exception as exc:
            outcome = self.failure(exc)
        await self._report(outcome)
        deliver(outcome)

    def _answer(self, reply: ModelResponse) -> ModelAnswer:
        """Read a reply. Raise BrokenOff or Unusable."""
        reply = mend(replace(reply, usage=complete_usage(reply, self._request_tokens)))
        as_text = _wants_text(self._request)
        # A summary of the memory is as long as it may be: its beginning is worth keeping.
        require_whole(reply, as_text=as_text, may_be_cut=self._request.memory_tokens > 0)
        answer = from_provider(self._agent, reply, model=self.model, summary=as_text)
        if self._request.summary and len(answer.text) > MAX_SUMMARY:
            raise Unusable(f"wrote a summary of more than {MAX_SUMMARY} characters")
        return replace(answer, fallback=self._fallback)

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
                error = f"{self.model} did not answer within {self._request.deadline:g} s"
                failure = make_failure(error, FailureCause.TIME)
            case event_loop.Stopped():
                error = f"the call of {self.model} was ended before it answered"
                failure = make_failure(error, FailureCause.REQUEST)
            case _:
                failure = self._raised(exc)
        failure = self._complete(failure)
        if isinstance(exc, Unusable):
            text = kept(self._agent, plain(exc.text)) if exc.text else failure.partial
            # The next attempt learns of a reply that was too long, not of one that was refused.
            tokens = failure.usage.get("output_tokens", 0) if exc.is_cut else 0
            failure = replace(failure, partial=text, tokens=tokens)
        return failure

    async def _exchange(self, model: Model, conversation: list[ModelMessage]) -> ModelResponse:
        """Return the reply. Call the model again without a setting that its server refuses, once for each."""
        refused = providers.refused_settings(self.model)
        while True:
            try:
                reply = await self._receive(model, conversation)
            except ModelAPIError as exc:
                setting = find_refused(exc, model, refused)
                if setting is None:
                    raise
                refused |= {setting}
                model = providers.model_of(self.model, refused)
            else:
                providers.remember_refused(self.model, refused)
                return reply

    async def _receive(self, model: Model, conversation: list[ModelMessage]) -> ModelResponse:
        request, settings = self._request, _settings(self._agent, self._request)
        as_text = request.inquiry is not None
        tools = tools_of(self._agent, summary=request.summary, as_text=as_text)
        self._request_tokens = estimate_request(conversation, tools.tool_defs.values())
        if not providers.streams(self.model):
            reply = await model_request(
                model, conversation, model_request_parameters=tools, model_settings=settings
            )
            self._snapshot = lambda: reply
            return reply
        async with model_request_stream(
            model, conversation, model_request_parameters=tools, model_settings=settings
        ) as stream:
            self._snapshot = stream.get
            async with kept_every(KEEP_SECONDS, self.received, self._keep):
                async for _ in stream:
                    pass
        return stream.get()

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
            if self._snapshot is not None:
                reply = mend(self._snapshot())
                return received(self._agent, reply, self.model, self._request_tokens)
        return PartialReply(model=self.model)

    def _raised(self, exc: Exception) -> ModelFailure:
        """Make a failure of an exception of the provider's client."""
        failure = failure_of(exc, model=self.model)
        if not self._agent.keeps_secrets:  # a provider may quote the request
            failure = replace(failure, said=providers.without_keys(provider_text(exc)))
        _log_failure(self._agent, self._request, failure.error)
        return failure


def _wants_text(request: ModelRequest) -> bool:
    """Say whether the reply is read as text, even if the agent's result is typed."""
    return request.summary or request.inquiry is not None


def _settings(agent: AgentSpec, request: ModelRequest) -> ModelSettings:
    settings = ModelSettings(timeout=request.deadline)
    if request.inquiry is not None:
        settings["tool_choice"] = "none"  # the tools stay: replies in the request have called them
    if agent.temperature is not None:
        settings["temperature"] = agent.temperature
    if (most := request.memory_tokens or agent.max_tokens) is not None:
        settings["max_tokens"] = most
    return settings


def _over() -> None:
    """Do nothing: the call has ended or ends at once."""
