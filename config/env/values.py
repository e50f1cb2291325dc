"""Parsers of environment variables. They raise InvalidSetting for invalid ones.

A parser whose variable is not always the same takes its name. An empty variable counts as not set. The name of a
provider is part of its variables: SIGNOFF_PROVIDER_<NAME>_… for models, among which SIGNOFF_MODEL chooses, and
SIGNOFF_OIDC_<NAME>_… for those at which people sign in by OpenID.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, unquote, urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from agents import endpoints
from agents.endpoints import PREFIX, Endpoint, ProviderKind
from approvals.rules.identity_providers import IdentityProvider, SlackApp, is_confidential
from runtime.core.values.budgets import BudgetLimits, InvalidBudget, read_budget, read_form_budget
from runtime.upkeep import retention_rules

BUDGET_PREFIX = "SIGNOFF_BUDGET_"
BUDGET_NAMES = ("turns", "tokens", "usd", "seconds")

NOTICE_KINDS = {"mail", "apprise", "slack", "push"}
NOTICE_CONTENTS = {"nothing", "title", "arguments"}

OIDC_PREFIX = "SIGNOFF_OIDC_"
OIDC_NAME = r"[A-Z][A-Z0-9]{0,19}"
OIDC_PARTS = (
    *("ISSUER", "CLIENT", "SECRET", "SECRET_FILE", "LABEL"),
    *("ACR", "SECOND_FACTOR", "GROUPS"),
)
MODEL_NAME = r"[A-Z][A-Z0-9_]{0,39}?"
MODEL_PARTS = ("URL", "KEY", "KEY_FILE", "KIND", "STREAM")

READ = "read"  # key of a field's metadata

Variables = Mapping[str, str]
P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound=float | None)


class InvalidSetting(Exception):
    """An environment variable has an invalid value. The message names it for the operator."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name


def variable(parse: Callable[Concatenate[Variables, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Declare a field with the value that `parse` makes of the variables and these arguments."""
    value: T = field(metadata={READ: lambda variables: parse(variables, *args, **kwargs)})
    return value


# Kinds of values


def read_text(
    variables: Variables,
    name: str,
    is_valid: Callable[[str], bool] = bool,
    problem: str = "",
    *,
    default: str = "",
    ending: str = "",
) -> str:
    """Read a text without this ending. The problem of an invalid one may say it as `{}`."""
    value = (variables.get(name) or default).rstrip(ending)
    if value and not is_valid(value):
        raise InvalidSetting(name, problem.format(value))
    return value


def read_secret(variables: Variables, name: str) -> str:
    """Read a secret from the variable, or from the file in NAME_FILE, which a listing of variables does not show."""
    file = f"{name}_FILE"
    path = variables.get(file, "")
    value = variables.get(name, "").strip()
    if path and value:
        raise InvalidSetting(file, f"and {name} are both set: keep one of them")
    return read_file_content(file, path) if path else value


def read_file_content(name: str, path: str) -> str:
    """Read a file, without leading and trailing white space."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSetting(name, f"cannot be read: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSetting(name, f"cannot be read: {path} is not text") from error


def read_web_address(variables: Variables, name: str, default: str = "") -> str:
    """Read an address, without a slash at its end; the default if it is not set."""
    url = variables.get(name, "").rstrip("/")
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise InvalidSetting(name, "must be an address such as https://directory.example/scim/v2")
    return url or default


def read_yes_or_no(variables: Variables, name: str, default: str = "no") -> bool:
    """Read a yes or no."""
    answer = variables.get(name, "").lower() or default
    if answer not in ("yes", "no"):
        raise InvalidSetting(name, f"must be yes or no, not {answer!r}")
    return answer == "yes"


def read_time(
    variables: Variables,
    name: str,
    default: D,
    minimum: float,
    maximum: float,
    unit: str = "seconds",
) -> float | D:
    """Read a time."""
    value = variables.get(name, "")
    try:
        amount = float(value) if value else default
    except ValueError:
        raise InvalidSetting(name, f"must be a number of {unit}, not {value!r}") from None
    if amount is not None and not minimum <= amount <= maximum:
        raise InvalidSetting(
            name, f"must be between {minimum:.0f} and {maximum:.0f} {unit}, not {value}"
        )
    return amount


def read_number(variables: Variables, name: str, default: int, minimum: int, maximum: int) -> int:
    """Read a whole number."""
    value = variables.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdecimal()) or not minimum <= int(value[:9]) <= maximum:
        raise InvalidSetting(
            name, f"must be a whole number from {minimum} to {maximum}, not {value!r}"
        )
    return int(value)


def read_texts(
    variables: Variables,
    name: str,
    is_valid: Callable[[str], bool] = bool,
    problem: str = "",
    *,
    default: str = "",
    ending: str = "",
) -> tuple[str, ...]:
    """Read texts, separated by commas; else as `read_text`."""
    items = (item.strip() for item in (variables.get(name) or default).split(","))
    read = (read_text({name: item}, name, is_valid, problem, ending=ending) for item in items)
    return tuple(filter(None, read))


def read_paths(
    variables: Variables, name: str, is_valid: Callable[[str], bool], problem: str
) -> tuple[Path, ...]:
    """Read paths, separated by commas."""
    return tuple(map(Path, read_texts(variables, name, is_valid, problem)))


def read_path(variables: Variables, name: str, default: T) -> Path | T:
    """Read the path of a file or folder, which may be missing here."""
    return Path(variables[name]) if variables.get(name) else default


def read_retention_rules(
    variables: Variables, name: str
) -> tuple[retention_rules.RetentionRule, ...]:
    """Read rules of retention."""
    try:
        return retention_rules.parse(variables.get(name, ""))
    except ValueError as error:
        raise InvalidSetting(name, str(error)) from None


def read_password(
    variables: Variables,
    name: str,
    address: str,
    address_password: str | None = None,
    *,
    may_be_empty: bool = False,
) -> str:
    """Read the password of an address from a file; empty if no file is named."""
    path = variables.get(name, "")
    if not path:
        return ""
    value = read_file_content(name, path)
    if value and address_password:
        raise InvalidSetting(name, f"and a password in {address} are both set: keep one of them")
    if not value and not may_be_empty:
        raise InvalidSetting(name, f"holds nothing: {path}")
    return value


# Postgres, the broker, the object store, the mail server


def read_database_settings(variables: Variables) -> dict[str, Any]:
    """Read Django's settings of the database."""
    name = "DATABASE_URL"
    url = variables.get(name) or "postgres://localhost/signoff"
    if urlsplit(url).scheme not in ("postgres", "postgresql"):
        raise InvalidSetting(name, "must start with postgres://")
    config = _parse_url(name, url, environ.Env.db_url_config)
    if not config.get("NAME"):
        raise InvalidSetting(
            name, "must end with the name of a database, as in postgres://host/signoff"
        )
    if value := read_password(variables, "DATABASE_PASSWORD_FILE", name, config.get("PASSWORD")):
        config["PASSWORD"] = value
    # The host may be a socket folder, with its slashes as %2F.
    return {**config, "HOST": unquote(config["HOST"])}


def read_role(variables: Variables, name: str, paired_with: str) -> str | None:
    """Read a Postgres role. It must be set together with the role named by `paired_with`."""
    value = variables.get(name) or None
    if value and not variables.get(paired_with):
        raise InvalidSetting(name, f"is set without {paired_with}: set both, or neither")
    return value


def read_redis_url(variables: Variables) -> str:
    """Read the address of the broker, with its password."""
    name = "REDIS_URL"
    url = _check_redis_address(name, variables.get(name) or "redis://localhost:6379/0")
    parts = urlsplit(url)
    value = read_password(variables, "REDIS_PASSWORD_FILE", name, parts.password)
    if not value:
        return url
    if parts.scheme == "unix":
        raise InvalidSetting(
            "REDIS_PASSWORD_FILE", f"is not for a socket: {name} starts with unix://"
        )
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:{quote(value, safe='')}@{host}").geturl()


def read_streams_url(variables: Variables) -> str:
    """Read the address of the server of streams, which is the broker by default."""
    name = "SIGNOFF_STREAMS_URL"
    return _check_redis_address(name, variables.get(name) or read_redis_url(variables))


def _check_redis_address(name: str, url: str) -> str:
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise InvalidSetting(name, "must start with redis://, rediss:// or unix://")
    return url


def read_email_settings(variables: Variables) -> dict[str, Any]:
    """Read Django's settings of mail."""
    name = "EMAIL_URL"
    config = _parse_url(
        name, variables.get(name) or "smtp://localhost:25", environ.Env.email_url_config
    )
    url_password = config.get("EMAIL_HOST_PASSWORD")
    if value := read_password(
        variables, "EMAIL_PASSWORD_FILE", name, url_password, may_be_empty=True
    ):
        config["EMAIL_HOST_PASSWORD"] = value
    return {
        key: item for key, item in config.items() if key.startswith("EMAIL_") and item is not None
    }


def _parse_url(name: str, url: str, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(url)
    except (ImproperlyConfigured, ValueError) as error:
        raise InvalidSetting(name, f"cannot be read: {error}") from error


# Agents and their models


def read_agents_dir(variables: Variables) -> str:
    """Read the extra folder in which to find the modules of SIGNOFF_AGENTS; empty for none."""
    name = "AGENTS_DIR"
    path = os.path.expanduser(variables.get(name, ""))  # noqa: PTH111 - empty stays empty
    if path and not os.path.isdir(path):  # noqa: PTH112 - Path would raise without permission
        raise InvalidSetting(name, f"is not a folder that can be reached: {path}")
    return path


def read_model_providers(variables: Variables) -> dict[str, Endpoint]:
    """Read the providers of models by name, without those that have variables of their own."""
    names = _list_provider_names(variables, PREFIX, MODEL_NAME, MODEL_PARTS)
    for name, setting in names.items():
        if name in endpoints.OWN_VARIABLES:
            settings = " and ".join(endpoints.OWN_VARIABLES[name])
            raise InvalidSetting(setting, f"is not a known setting: set {settings} for {name}")
    return {name: _read_model_provider(variables, name) for name in names}


def _read_model_provider(variables: Variables, name: str) -> Endpoint:
    prefix = f"{PREFIX}{name.upper()}_"
    url = read_web_address(variables, f"{prefix}URL")
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
        raise InvalidSetting(f"{prefix}URL", f"must be set, or {prefix}KIND: {name} has no address")
    return Endpoint(
        name=name,
        kind=kind,
        url=url,
        key=read_secret(variables, f"{prefix}KEY"),
        streams=read_yes_or_no(variables, f"{prefix}STREAM", default="yes"),
    )


def read_models(variables: Variables) -> str:
    """Read `scripted`, or the models in the order in which they are asked."""
    name = "SIGNOFF_MODEL"
    openai, anthropic = (
        (read_web_address(variables, url), read_secret(variables, key))
        for url, key in endpoints.OWN_VARIABLES.values()
    )
    providers = endpoints.list_providers(
        openai=openai, anthropic=anthropic, configured=read_model_providers(variables)
    )
    models = [item.strip() for item in (variables.get(name) or endpoints.SCRIPTED).split(",")]
    for model_name in models if models != [endpoints.SCRIPTED] else []:
        if not endpoints.NAMED.fullmatch(model_name) or models.count(model_name) > 1:
            raise InvalidSetting(
                name, f"must be scripted, or each model once as provider:model, not {model_name!r}"
            )
        if (lacking := endpoints.find_missing_variable(model_name, providers)) is None:
            continue
        if lacking.may_be_file:
            raise InvalidSetting(
                lacking.variable,
                f"must be set, or {lacking.variable}_FILE, because {name} names {model_name}",
            )
        raise InvalidSetting(
            name,
            f"names {model_name}, but {endpoints.parse_provider_name(model_name)} has no address: {lacking}",
        )
    return ",".join(models)


def _list_provider_names(
    variables: Variables, prefix: str, pattern: str, parts: Sequence[str]
) -> dict[str, str]:
    """Return a variable of each provider, by the provider's name. A variable is prefix, name and one of the parts."""
    names = {}
    for variable_name in sorted(name for name in variables if name.startswith(prefix)):
        if not variables[variable_name]:
            continue
        match = re.fullmatch(rf"{prefix}({pattern})_({'|'.join(parts)})", variable_name)
        if match is None:
            endings = ", ".join(f"_{part}" for part in parts)
            raise InvalidSetting(
                variable_name,
                f"is not a known setting: after the provider's name comes one of {endings}",
            )
        names[match[1].lower()] = variable_name
    return dict(sorted(names.items()))


# A run's budget, and the key of the web process


def read_budget_limits(variables: Variables) -> BudgetLimits | None:
    """Read the budget of a run; None if no limit is set."""
    limits = {name: variables.get(BUDGET_PREFIX + name.upper(), "") for name in BUDGET_NAMES}
    try:
        return read_budget(read_form_budget(limits))
    except InvalidBudget as exc:
        raise InvalidSetting(BUDGET_PREFIX + exc.name.upper(), exc.detail) from None


def read_secret_key(variables: Variables) -> str:
    """Read the secret key; empty without a file. Django then refuses to sign, so no known key is ever used."""
    name = "SECRET_KEY_FILE"
    path = variables.get(name, "")
    if not path:
        return ""
    key = read_file_content(name, path)
    if len(key) < 50:
        raise InvalidSetting(name, "must hold at least 50 characters")
    return key


# Webhooks and notices


def read_loopback_webhooks(variables: Variables) -> bool:
    """Read whether webhooks may be on this machine, without TLS: for tests, and never on a real installation."""
    name = "SIGNOFF_LOOPBACK_WEBHOOKS"
    allowed = read_yes_or_no(variables, name)
    if allowed and read_public_url(variables).startswith("https://"):
        raise InvalidSetting(name, "is for tests, so PUBLIC_URL must not be https")
    return allowed


def read_internal_webhooks(variables: Variables) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read the networks besides the internet to which webhooks of admins go."""
    name = "SIGNOFF_INTERNAL_WEBHOOKS"
    networks = [network.strip() for network in variables.get(name, "").split(",")]
    try:
        return tuple(ip_network(network) for network in networks if network)
    except ValueError as exc:
        raise InvalidSetting(name, "must have networks such as 10.1.0.0/16") from exc


def read_notice_contents(variables: Variables) -> dict[str, str]:
    """Read how much notices of each kind may show, such as mail=arguments,apprise=nothing."""
    name = "SIGNOFF_NOTICES"
    pairs = [pair.strip() for pair in variables.get(name, "").split(",")]
    contents = {kind: item for kind, _, item in (pair.partition("=") for pair in pairs if pair)}
    if set(contents) - NOTICE_KINDS or set(contents.values()) - NOTICE_CONTENTS:
        raise InvalidSetting(
            name,
            f"must have kind=content pairs; kinds: {', '.join(sorted(NOTICE_KINDS))};"
            f" contents: {', '.join(sorted(NOTICE_CONTENTS))}",
        )
    return contents


# The web process


def read_public_url(variables: Variables) -> str:
    """Read the address that people type."""
    return read_web_address(variables, "PUBLIC_URL", "http://127.0.0.1:8000")


def read_log_level(variables: Variables) -> str:
    """Read the level from which records are logged."""
    name = "LOG_LEVEL"
    level = (variables.get(name) or "INFO").upper()
    if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        raise InvalidSetting(name, f"must be debug, info, warning or error, not {level!r}")
    return level


def read_behind_proxy(variables: Variables) -> bool:
    """Read whether a proxy is in front. The web process speaks plain HTTP: it would redirect to https without end."""
    name = "BEHIND_PROXY"
    has_proxy = read_yes_or_no(variables, name)
    if not has_proxy and read_public_url(variables).startswith("https://"):
        raise InvalidSetting(
            name, "must be yes, because PUBLIC_URL is https: a proxy that sets X-Forwarded-Proto"
        )
    return has_proxy


def read_allowed_hosts(variables: Variables) -> tuple[str, ...]:
    """Read the names under which the web process is requested."""
    hosts = read_texts(
        variables,
        "ALLOWED_HOSTS",
        lambda host: host != "*",
        "must list host names; * would accept any",
    )
    hosts += (
        urlsplit(read_public_url(variables)).hostname or "",
        "127.0.0.1",
        "localhost",
        "[::1]",
    )
    return tuple(dict.fromkeys(hosts))


def read_identity_providers(variables: Variables) -> dict[str, IdentityProvider]:
    """Read the providers at which people sign in, by name."""
    names = _list_provider_names(variables, OIDC_PREFIX, OIDC_NAME, OIDC_PARTS)
    return {name: _read_identity_provider(variables, name) for name in names}


def _read_identity_provider(variables: Variables, name: str) -> IdentityProvider:
    prefix = f"{OIDC_PREFIX}{name.upper()}_"
    issuer = variables.get(f"{prefix}ISSUER", "")
    if not is_confidential(issuer):
        raise InvalidSetting(
            f"{prefix}ISSUER", "must be an address with https, such as https://login.example"
        )
    client = variables.get(f"{prefix}CLIENT", "")
    client_secret = read_secret(variables, f"{prefix}SECRET")
    for ending, value in (("CLIENT", client), ("SECRET", client_secret)):
        if not value:
            raise InvalidSetting(f"{prefix}{ending}", f"must be set: {prefix}ISSUER is")
    return IdentityProvider(
        name=name,
        label=variables.get(f"{prefix}LABEL") or name.capitalize(),
        issuer=issuer,
        client=client,
        secret=client_secret,
        acr=variables.get(f"{prefix}ACR", ""),
        asks_second=read_yes_or_no(variables, f"{prefix}SECOND_FACTOR"),
        claim=variables.get(f"{prefix}GROUPS", ""),
    )


def read_slack_app(variables: Variables) -> SlackApp | None:
    """Read the Slack app; None without one."""
    names = ("SIGNOFF_SLACK_TOKEN", "SIGNOFF_SLACK_SECRET")
    token, signing_secret = (read_secret(variables, name) for name in names)
    for name, value in zip(names, (token, signing_secret), strict=True):
        if not value and (token or signing_secret):
            raise InvalidSetting(name, "must be set too: it is of the same app")
    url = read_web_address(variables, "SIGNOFF_SLACK_URL", "https://slack.com/api")
    decides = read_yes_or_no(variables, "SIGNOFF_SLACK_DECISIONS")
    return SlackApp(token=token, secret=signing_secret, url=url, decides=decides) if token else None


def read_metrics_token(variables: Variables) -> str:
    """Read the token of /metrics; empty if none is set. A short one could be guessed."""
    name = "SIGNOFF_METRICS_TOKEN"
    token = read_secret(variables, name)
    if token and (
        len(token) < 20 or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise InvalidSetting(name, "must be at least 20 letters, digits and signs, without spaces")
    return token
