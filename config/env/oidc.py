"""Reads the OpenID providers at which people sign in, SIGNOFF_OIDC_<NAME>_…."""

import re
from collections.abc import Mapping

from approvals.rules.identity_providers import IdentityProvider, is_confidential
from config.env import values
from config.env.values import InvalidSetting

PREFIX = "SIGNOFF_OIDC_"
PARTS = (
    *("ISSUER", "CLIENT", "SECRET", "SECRET_FILE", "LABEL"),
    *("ACR", "SECOND_FACTOR", "GROUPS"),
)
VARIABLE = re.compile(rf"{PREFIX}([A-Z][A-Z0-9]{{0,19}})_({'|'.join(PARTS)})")


def read(variables: Mapping[str, str]) -> dict[str, IdentityProvider]:
    """Return the providers by name. Raise InvalidSetting."""
    names = values.read_names(variables, PREFIX, VARIABLE, PARTS)
    return {name: _provider(variables, name) for name in names}


def _provider(variables: Mapping[str, str], name: str) -> IdentityProvider:
    prefix = f"{PREFIX}{name.upper()}_"
    issuer = variables.get(f"{prefix}ISSUER", "")
    if not is_confidential(issuer):
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
    return IdentityProvider(
        name=name,
        label=label,
        issuer=issuer,
        client=client,
        secret=secret,
        acr=variables.get(f"{prefix}ACR", ""),
        asks_second=values.yes(variables, f"{prefix}SECOND_FACTOR", default="no"),
        claim=variables.get(f"{prefix}GROUPS", ""),
    )
