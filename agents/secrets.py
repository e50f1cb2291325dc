"""Seals the values that tools declare secret, so that only the tool and the model see them.

`runtime.keyring.sealing` seals a value. The seal authenticates the place of the value. A token that is moved to
another place does not open there, so no other tool can reveal it.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, quote_plus

from agents.errors import NotSealed
from agents.masked_output import REDACTED
from agents.sdk.spec import ToolSpec
from runtime.keyring import sealing


def seal_args(tool: ToolSpec, args: Any) -> Any:
    """Return the arguments with every secret sealed.

    Arguments that the tool does not have are sealed too, because a misspelt name or a text may hold the secret. If the
    tool is held, their names are sealed with them: a model may write its text there.
    """
    if not tool.secret_args:
        return args
    if not isinstance(args, dict) or (
        tool.holds_text and not args.keys() <= tool.schema["properties"].keys()
    ):
        return _seal(args, _encode_location(tool, "args"))
    return {
        name: _seal(value, _encode_location(tool, _choose_seal_kind(tool), name))
        if _is_secret(tool, name)
        else value
        for name, value in args.items()
    }


def open_args(tool: ToolSpec, args: Any) -> Any:
    """Return the arguments of a tool with secrets as the model gave them. Raise NotSealed or KeyMissing."""
    if sealing.is_sealed(args):
        return _open(args, _encode_location(tool, "args"))
    if not isinstance(args, dict):
        return args
    return {
        name: _open(value, _encode_location(tool, _choose_seal_kind(tool), name))
        if _is_secret(tool, name) and sealing.is_sealed(value)
        else value
        for name, value in args.items()
    }


def seal_reply(tool: ToolSpec, args: Any) -> Any:
    """Seal the arguments in a model's reply, text or object, to be given back unchanged."""
    return _seal(args, _encode_location(tool, "reply")) if tool.secret_args else args


def open_reply(tool: ToolSpec, args: Any) -> Any:
    """Return the arguments in a stored reply, opened."""
    return (
        _open(args, _encode_location(tool, "reply"))
        if tool.secret_args and sealing.is_sealed(args)
        else args
    )


def seal_result(tool: ToolSpec, result: Any) -> Any:
    """Return the result, sealed if the tool declares it secret."""
    return _seal(result, _encode_location(tool, "result")) if tool.secret_result else result


def open_result(tool: ToolSpec, result: Any) -> Any:
    """Return the result as the tool gave it. A result that a person reported is not sealed. Raise like open_args."""
    sealed = tool.secret_result and sealing.is_sealed(result)
    return _open(result, _encode_location(tool, "result")) if sealed else result


def redact(tool: ToolSpec, args: Any, text: str) -> str:
    """Return `text` without the secrets among these opened arguments."""
    if not tool.secret_args:
        return text
    values = args.items() if isinstance(args, dict) else [("", args)]
    secrets = {
        leaf for name, value in values if _is_secret(tool, name) for leaf in _walk_texts(value)
    }
    if tool.holds_text:
        schema = json.dumps(tool.schema)
        secrets.update(
            *(list_written_forms(name) for name, _ in values if json.dumps(name) not in schema)
        )
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def list_written_forms(secret: str) -> set[str]:
    """Return the ways in which errors write a secret text: as it is, in JSON, by repr, and in a URL."""
    in_urls = {quote(secret), quote(secret, ""), quote_plus(secret)}
    quoted = {json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    return {secret, secret.strip(), *quoted, *in_urls} - {""}


def _is_secret(tool: ToolSpec, name: str) -> bool:
    return name in tool.secret_args or name not in tool.schema["properties"]


def _choose_seal_kind(tool: ToolSpec) -> str:
    return sealing.HELD if tool.holds_text else "args"


def _encode_location(tool: ToolSpec, *path: str) -> bytes:
    return sealing.encode_location(tool.name, *path)


def _seal(value: Any, location: bytes) -> dict[str, str]:
    return sealing.seal(value, location)


def _open(sealed: dict[str, str], location: bytes) -> Any:
    try:
        return sealing.unseal(sealed, location)
    except sealing.NotOurs as exc:
        raise NotSealed("a secret was not sealed here, or not for this place") from exc


def _walk_texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, as it is and as errors quote it."""
    match value:
        case str():
            yield from list_written_forms(value)
        case bool() | None:
            return
        case int() | float():
            yield json.dumps(value)
        case list():
            for item in value:
                yield from _walk_texts(item)
        case dict():
            for name, item in value.items():
                yield from _walk_texts(name)
                yield from _walk_texts(item)
