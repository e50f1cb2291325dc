"""Seals what tools declare secret, so that only the tool and the model ever see it.

A sealed value is `{"$secret": "<key id>:<token>"}`; the token is AES-256-GCM (NIST SP 800-38D) over the
value's JSON, with a random nonce in front, under the current key of the purpose `secrets`. The place a
value belongs to (a tool and an argument, or a tool's result) is authenticated with it: a token that is
moved to another place does not open there, and so cannot be laundered through a tool that is not secret.
"""

import base64
import binascii
import json
import os
from collections.abc import Iterator
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from agents.errors import NotSealed
from agents.spec import ToolSpec
from agents.wording import MASK
from runtime import keyring

MARK = "$secret"

NONCE_BYTES = 12


def seal_args(tool: ToolSpec, args: Any) -> Any:
    """The arguments with every secret sealed.

    So is whatever the tool does not know: a misspelt name, or text that is no object, may hold the secret too.
    """
    if not tool.secret_args:
        return args
    if not isinstance(args, dict):
        return _seal(args, _place(tool, "args"))
    return {
        name: _seal(value, _place(tool, "args", name)) if _is_secret(tool, name) else value
        for name, value in args.items()
    }


def open_args(tool: ToolSpec, args: Any) -> Any:
    """The arguments as the model gave them. Raises NotSealed or runtime.errors.KeyMissing."""
    if not tool.secret_args:
        return args
    if is_sealed(args):
        return _open(args, _place(tool, "args"))
    if not isinstance(args, dict):
        return args
    return {
        name: _open(value, _place(tool, "args", name))
        if _is_secret(tool, name) and is_sealed(value)
        else value
        for name, value in args.items()
    }


def seal_reply(tool: ToolSpec, args: Any) -> Any:
    """Arguments as a model's reply has them, text or object, to be given back exactly so."""
    return _seal(args, _place(tool, "reply")) if tool.secret_args else args


def open_reply(tool: ToolSpec, args: Any) -> Any:
    return _open(args, _place(tool, "reply")) if tool.secret_args and is_sealed(args) else args


def seal_result(tool: ToolSpec, result: Any) -> Any:
    return _seal(result, _place(tool, "result")) if tool.secret_result else result


def open_result(tool: ToolSpec, result: Any) -> Any:
    """The result as the tool gave it; what a person reported instead was never sealed. Raises as open_args."""
    sealed = tool.secret_result and is_sealed(result)
    return _open(result, _place(tool, "result")) if sealed else result


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {MARK} and isinstance(value[MARK], str)


def redact(tool: ToolSpec, args: Any, text: str) -> str:
    """`text` without the secrets among these (opened) arguments, wherever it quotes one."""
    if not tool.secret_args:
        return text
    values = args.items() if isinstance(args, dict) else [("", args)]
    secrets = {leaf for name, value in values if _is_secret(tool, name) for leaf in _leaves(value)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def _is_secret(tool: ToolSpec, name: str) -> bool:
    return name in tool.secret_args or name not in tool.schema["properties"]


def _place(tool: ToolSpec, *path: str) -> bytes:
    return json.dumps([tool.name, *path]).encode()


def _seal(value: Any, place: bytes) -> dict[str, str]:
    key_id, key = keyring.current_key(keyring.SECRETS)
    nonce = os.urandom(NONCE_BYTES)
    token = nonce + AESGCM(key).encrypt(nonce, json.dumps(value).encode(), place)
    return {MARK: f"{key_id}:{base64.urlsafe_b64encode(token).decode()}"}


def _open(sealed: dict[str, str], place: bytes) -> Any:
    key_id, _, text = sealed[MARK].partition(":")
    key = keyring.key_of(keyring.SECRETS, key_id)
    try:
        token = base64.urlsafe_b64decode(text)
        value = AESGCM(key).decrypt(token[:NONCE_BYTES], token[NONCE_BYTES:], place)
    except (InvalidTag, ValueError, binascii.Error) as exc:
        raise NotSealed("a secret was not sealed here, or not for this place") from exc
    return json.loads(value)


def _leaves(value: Any) -> Iterator[str]:
    """Every text in a value, as it stands and as JSON and repr would quote it."""
    match value:
        case str():
            yield from {value, json.dumps(value)[1:-1], repr(value)[1:-1]} - {""}
        case bool() | None:
            return
        case int() | float():
            yield json.dumps(value)
        case list():
            for item in value:
                yield from _leaves(item)
        case dict():
            for name, item in value.items():
                yield from _leaves(name)
                yield from _leaves(item)
