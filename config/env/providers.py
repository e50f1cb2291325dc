"""Reads SIGNOFF_MODEL and the providers of models, SIGNOFF_PROVIDER_<NAME>_…."""

import re
from collections.abc import Mapping

from agents.endpoints import (
    NAMED,
    OWN_VARIABLES,
    PREFIX,
    Endpoint,
    ProviderKind,
    missing,
    provider_of,
)
from config.env import values
from config.env.values import InvalidSetting

SCRIPTED = "scripted"
PARTS = ("URL", "KEY", "KEY_FILE", "KIND", "STREAM")
VARIABLE = re.compile(rf"{PREFIX}([A-Z][A-Z0-9_]{{0,39}}?)_({'|'.join(PARTS)})")


def read(variables: Mapping[str, str]) -> dict[str, Endpoint]:
    """Return the providers by name. Raise InvalidSetting."""
    names = values.read_names(variables, PREFIX, VARIABLE, PARTS)
    for name, variable in names.items():
        if name in OWN_VARIABLES:
            settings = " and ".join(OWN_VARIABLES[name])
            raise InvalidSetting(variable, f"is not a known setting: set {settings} for {name}")
    return {name: _endpoint(variables, name) for name in names}


def model(variables: Mapping[str, str], known_endpoints: Mapping[str, Endpoint]) -> str:
    """Return `scripted`, or the models in the order in which they are asked. Raise InvalidSetting."""
    name = "SIGNOFF_MODEL"
    models = [model_name.strip() for model_name in (variables.get(name) or SCRIPTED).split(",")]
    for model_name in models if models != [SCRIPTED] else []:
        if not NAMED.fullmatch(model_name) or models.count(model_name) > 1:
            raise InvalidSetting(
                name, f"must be scripted, or each model once as provider:model, not {model_name!r}"
            )
        if (lacking := missing(model_name, known_endpoints)) is None:
            continue
        if lacking.may_be_file:
            raise InvalidSetting(
                lacking.variable,
                f"must be set, or {lacking.variable}_FILE, because {name} names {model_name}",
            )
        raise InvalidSetting(
            name, f"names {model_name}, but {provider_of(model_name)} has no address: {lacking}"
        )
    return ",".join(models)


def _endpoint(variables: Mapping[str, str], name: str) -> Endpoint:
    prefix = f"{PREFIX}{name.upper()}_"
    url = values.web_address(variables, f"{prefix}URL")
    kind = _kind(variables, name, f"{prefix}KIND")
    if not url and kind is ProviderKind.OPENAI and not variables.get(f"{prefix}KIND"):
        # A key alone must not be sent to OpenAI because of a mistyped name.
        raise InvalidSetting(f"{prefix}URL", f"must be set, or {prefix}KIND: {name} has no address")
    return Endpoint(
        name=name,
        kind=kind,
        url=url,
        key=values.secret(variables, f"{prefix}KEY"),
        streams=values.yes(variables, f"{prefix}STREAM", default="yes"),
    )


def _kind(variables: Mapping[str, str], name: str, variable: str) -> ProviderKind:
    """Read the kind. By default it is the kind of the same name, else OpenAI's protocol."""
    kinds = tuple(ProviderKind)
    kind_name = variables.get(variable, "").lower() or (
        name if name in kinds else ProviderKind.OPENAI
    )
    if kind_name not in kinds:
        raise InvalidSetting(variable, f"must be one of {', '.join(kinds)}, not {kind_name!r}")
    return ProviderKind(kind_name)
