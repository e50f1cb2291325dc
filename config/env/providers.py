"""Reads the providers whose names are parts of their variables.

Those of models are SIGNOFF_PROVIDER_<NAME>_…, with SIGNOFF_MODEL, which chooses among them. Those at which people sign
in by OpenID are SIGNOFF_OIDC_<NAME>_….
"""

import re
from collections.abc import Mapping

from agents.endpoints import (
    NAMED,
    OWN_VARIABLES,
    PREFIX,
    SCRIPTED,
    Endpoint,
    ProviderKind,
    missing,
    provider_of,
)
from approvals.rules.identity_providers import IdentityProvider, is_confidential
from config.env import values
from config.env.values import InvalidSetting

OIDC_PREFIX = "SIGNOFF_OIDC_"
OIDC_PARTS = (
    *("ISSUER", "CLIENT", "SECRET", "SECRET_FILE", "LABEL"),
    *("ACR", "SECOND_FACTOR", "GROUPS"),
)
OIDC_VARIABLE = re.compile(rf"{OIDC_PREFIX}([A-Z][A-Z0-9]{{0,19}})_({'|'.join(OIDC_PARTS)})")

PARTS = ("URL", "KEY", "KEY_FILE", "KIND", "STREAM")
VARIABLE = re.compile(rf"{PREFIX}([A-Z][A-Z0-9_]{{0,39}}?)_({'|'.join(PARTS)})")


def read_endpoints(variables: Mapping[str, str]) -> dict[str, Endpoint]:
    """Return the providers by name. Raise InvalidSetting."""
    names = values.read_names(variables, PREFIX, VARIABLE, PARTS)
    for name, variable in names.items():
        if name in OWN_VARIABLES:
            settings = " and ".join(OWN_VARIABLES[name])
            raise InvalidSetting(variable, f"is not a known setting: set {settings} for {name}")
    providers = {}
    for name in names:
        prefix = f"{PREFIX}{name.upper()}_"
        url = values.web_address(variables, f"{prefix}URL")
        kinds = tuple(ProviderKind)
        kind_name = variables.get(f"{prefix}KIND", "").lower() or (
            name if name in kinds else ProviderKind.OPENAI
        )
        if kind_name not in kinds:
            raise InvalidSetting(
                f"{prefix}KIND", f"must be one of {', '.join(kinds)}, not {kind_name!r}"
            )
        kind = ProviderKind(kind_name)
        if not url and kind is ProviderKind.OPENAI and not variables.get(f"{prefix}KIND"):
            # A key alone must not be sent to OpenAI because of a mistyped name.
            raise InvalidSetting(
                f"{prefix}URL", f"must be set, or {prefix}KIND: {name} has no address"
            )
        providers[name] = Endpoint(
            name=name,
            kind=kind,
            url=url,
            key=values.secret(variables, f"{prefix}KEY"),
            streams=values.yes(variables, f"{prefix}STREAM", default="yes"),
        )
    return providers


def read_model(variables: Mapping[str, str], known_endpoints: Mapping[str, Endpoint]) -> str:
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


def read_identity_providers(variables: Mapping[str, str]) -> dict[str, IdentityProvider]:
    """Return the providers by name. Raise InvalidSetting."""
    names = values.read_names(variables, OIDC_PREFIX, OIDC_VARIABLE, OIDC_PARTS)
    providers = {}
    for name in names:
        prefix = f"{OIDC_PREFIX}{name.upper()}_"
        issuer = variables.get(f"{prefix}ISSUER", "")
        if not is_confidential(issuer):
            raise InvalidSetting(
                f"{prefix}ISSUER", "must be an address with https, such as https://login.example"
            )
        client = variables.get(f"{prefix}CLIENT", "")
        secret = values.secret(variables, f"{prefix}SECRET")
        for ending, value in (("CLIENT", client), ("SECRET", secret)):
            if not value:
                raise InvalidSetting(f"{prefix}{ending}", f"must be set: {prefix}ISSUER is")
        providers[name] = IdentityProvider(
            name=name,
            label=variables.get(f"{prefix}LABEL") or name.capitalize(),
            issuer=issuer,
            client=client,
            secret=secret,
            acr=variables.get(f"{prefix}ACR", ""),
            asks_second=values.yes(variables, f"{prefix}SECOND_FACTOR", default="no"),
            claim=variables.get(f"{prefix}GROUPS", ""),
        )
    return providers
