"""Reads the OpenID providers at which people sign in, SIGNOFF_OIDC_<NAME>_…."""

import re
from collections.abc import Mapping

from approvals.rules.identity_providers import IdentityProvider, is_private_address
from config.env import values
from config.env.values import InvalidSetting

PREFIX = "SIGNOFF_OIDC_"
PARTS = ("ISSUER", "CLIENT", "SECRET", "SECRET_FILE", "LABEL")
VARIABLE = re.compile(rf"{PREFIX}([A-Z][A-Z0-9]{{0,19}})_({'|'.join(PARTS)})")


def read(variables: Mapping[str, str]) -> dict[str, IdentityProvider]:
    """Return the providers by name. Raise InvalidSetting."""
    ours = [variable for variable in variables if variable.startswith(PREFIX)]
    names = {_name(variable) for variable in ours if variables[variable]}
    return {name: _provider(variables, name) for name in sorted(names)}


def _name(variable: str) -> str:
    match = VARIABLE.fullmatch(variable)
    if match is None:
        parts = ", ".join(f"_{part}" for part in PARTS)
        raise InvalidSetting(
            variable, f"is not a known setting: after the provider's name comes one of {parts}"
        )
    return match[1].lower()


def _provider(variables: Mapping[str, str], name: str) -> IdentityProvider:
    prefix = f"{PREFIX}{name.upper()}_"
    issuer = variables.get(f"{prefix}ISSUER", "")
    if not is_private_address(issuer):
        raise InvalidSetting(
            f"{prefix}ISSUER", "must be an address with https, such as https://login.example"
        )
    client, secret = (
        variables.get(f"{prefix}CLIENT", ""),
        values.secret(variables, f"{prefix}SECRET"),
    )
    for ending, value in (("CLIENT", client), ("SECRET", secret)):
        if not value:
            raise InvalidSetting(f"{prefix}{ending}", f"must be set: {prefix}ISSUER is")
    label = variables.get(f"{prefix}LABEL") or name.capitalize()
    return IdentityProvider(name=name, label=label, issuer=issuer, client=client, secret=secret)
