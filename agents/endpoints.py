"""Providers of models, each with its protocol, address and key. A model is named `provider:model`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

NAMED = re.compile(r"[a-z][a-z0-9_]{0,39}:\S(.*\S)?")
SCRIPTED = "scripted"
PREFIX = "SIGNOFF_PROVIDER_"  # prefix of the variables of every provider but the two below
OWN_VARIABLES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
}


class ProviderKind(StrEnum):
    """The protocol of a provider. All but Anthropic's are OpenAI's protocol, with small differences."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    AZURE = "azure"
    BEDROCK = "bedrock"
    GEMINI = "gemini"
    OLLAMA = "ollama"
    VLLM = "vllm"


# The default address of a provider. Ollama's is on this machine.
ADDRESSES = {
    ProviderKind.OPENAI: "https://api.openai.com/v1",
    ProviderKind.ANTHROPIC: "https://api.anthropic.com",
    ProviderKind.GEMINI: "https://generativelanguage.googleapis.com/v1beta/openai",
    ProviderKind.OLLAMA: "http://127.0.0.1:11434/v1",
}
KEYLESS = frozenset({ProviderKind.OLLAMA, ProviderKind.VLLM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider. An empty `url` means the default of its kind; `streams` is false if it refuses to stream."""

    name: str
    kind: ProviderKind
    url: str = ""
    key: str = field(default="", repr=False)
    streams: bool = True

    @property
    def address(self) -> str:
        """The address to use, empty if none is known."""
        return self.url or ADDRESSES.get(self.kind, "")

    @property
    def is_compatible(self) -> bool:
        """Whether it speaks OpenAI's protocol without being OpenAI."""
        return self.kind is ProviderKind.OPENAI and bool(self.url) and self.name != "openai"

    @property
    def needs_key(self) -> bool:
        """Whether a key must be set. A self-hosted server may have none."""
        return self.kind not in KEYLESS and not self.is_compatible


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingVariable:
    """A variable that must be set before a model can be called."""

    variable: str
    may_be_file: bool = False

    def __str__(self) -> str:
        other = f", or {self.variable}_FILE" if self.may_be_file else ""
        return f"{self.variable} must be set{other}"


def list_providers(
    *,
    openai: tuple[str, str],
    anthropic: tuple[str, str],
    configured: Mapping[str, Endpoint],
) -> dict[str, Endpoint]:
    """Return all providers by name. OpenAI, Anthropic and the Ollama on this machine are always included.

    `openai` and `anthropic` are pairs of address and key; an address may be empty.
    """
    (openai_url, openai_key), (anthropic_url, anthropic_key) = openai, anthropic
    builtin = (
        Endpoint(name="openai", kind=ProviderKind.OPENAI, url=openai_url, key=openai_key),
        Endpoint(
            name="anthropic", kind=ProviderKind.ANTHROPIC, url=anthropic_url, key=anthropic_key
        ),
        Endpoint(name="ollama", kind=ProviderKind.OLLAMA),
    )
    return {endpoint.name: endpoint for endpoint in builtin} | dict(configured)


def parse_provider_name(model: str) -> str:
    """Return the name of the provider in the name of a model."""
    return model.partition(":")[0]


def find_missing_variable(model: str, providers: Mapping[str, Endpoint]) -> MissingVariable | None:
    """Return the variable that must be set before this model can be called, or None."""
    name = parse_provider_name(model)
    # Without variables, a provider needs an address unless its name is that of a kind.
    endpoint = providers.get(name) or Endpoint(
        name=name, kind=ProviderKind(name) if name in tuple(ProviderKind) else ProviderKind.VLLM
    )
    url, key = OWN_VARIABLES.get(name) or (
        f"{PREFIX}{name.upper()}_URL",
        f"{PREFIX}{name.upper()}_KEY",
    )
    if not endpoint.address:
        return MissingVariable(variable=url)
    if endpoint.needs_key and not endpoint.key:
        return MissingVariable(variable=key, may_be_file=True)
    return None
