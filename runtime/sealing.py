"""Sealed secrets: how a value is encrypted, and which values are really sealed.

A sealed value is `{"$secret": "<key id>:<token>"}`; the token is AES-256-GCM (NIST SP 800-38D) over the value's
JSON with a random nonce in front, under a key of the purpose `secrets`. The place it belongs to, a tool and an
argument or its result, is authenticated with it. An object that only looks like one hides nothing: a model
can write `{"$secret": "..."}` too.
"""

import base64
import binascii
import json
import os
import re
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from runtime import keyring
from runtime.errors import KeyMissing

MARK = "$secret"
PLACEHOLDER = "••••"
WHOLE = "arguments"  # the one name of arguments that are no object
NONCE_BYTES = 12
TAG_BYTES = 16


class NotOurs(ValueError):
    """The token was not sealed here, or not for this place."""


def place(tool: str, *path: str) -> bytes:
    """What a secret is bound to: `args`, `args` and a name, `reply` or `result` of a tool."""
    return json.dumps([tool, *path]).encode()


def seal(value: Any, where: bytes) -> dict[str, str]:
    key_id, key = keyring.current_key(keyring.SECRETS)
    nonce = os.urandom(NONCE_BYTES)
    token = nonce + AESGCM(key).encrypt(nonce, json.dumps(value).encode(), where)
    return {MARK: f"{key_id}:{base64.urlsafe_b64encode(token).decode()}"}


def unseal(sealed: dict[str, str], where: bytes) -> Any:
    """The value. Raises NotOurs, KeyMissing."""
    key_id, _, text = sealed[MARK].partition(":")
    key = keyring.key_of(keyring.SECRETS, key_id)
    try:
        token = base64.urlsafe_b64decode(text)
        value = AESGCM(key).decrypt(token[:NONCE_BYTES], token[NONCE_BYTES:], where)
    except (InvalidTag, ValueError, binascii.Error) as exc:
        raise NotOurs from exc
    return json.loads(value)


def is_sealed(value: Any) -> bool:
    """Whether it has the shape of a sealed value; anything can have it."""
    return isinstance(value, dict) and set(value) == {MARK} and isinstance(value[MARK], str)


def looks_sealed(value: Any) -> bool:
    """Whether any part of a JSON value has the mark of a sealed one, sealed here or not."""
    match value:
        case dict():
            return MARK in value or any(looks_sealed(item) for item in value.values())
        case list():
            return any(looks_sealed(item) for item in value)
        case _:
            return False


def masked_args(tool: str, args: Any) -> Any:
    """The arguments of a call with a placeholder for each secret that was sealed for its very place.

    All else is shown in full, also what looks like a secret and is none.
    """
    if _is_secret_whole(tool, args):
        return PLACEHOLDER
    if not isinstance(args, dict):
        return args
    hidden = secret_args(tool, args)
    return {name: PLACEHOLDER if name in hidden else value for name, value in args.items()}


def secret_args(tool: str, args: Any) -> frozenset[str]:
    """The names of the arguments that were sealed for their very place.

    Where all of them were sealed as one: the mark, and the name by which pages call such arguments.
    """
    if _is_secret_whole(tool, args):
        return frozenset({MARK, WHOLE})
    if not isinstance(args, dict):
        return frozenset()
    return frozenset(
        name for name, value in args.items() if _opens(value, place(tool, "args", name))
    )


def may_be_token(text: str) -> bool:
    """Whether this has the form of our tokens: a key id of the ring and enough bytes in canonical base64.

    For places where the tool is not known, such as an error that quotes an argument.
    """
    key_id, _, token = text.partition(":")
    try:
        found = base64.b64decode(token, altchars=b"-_", validate=True)
        known = bool(keyring.key_of(keyring.SECRETS, key_id))
    except (ValueError, binascii.Error, KeyMissing):
        return False
    return known and len(found) > NONCE_BYTES + TAG_BYTES


def may_start_token(text: str) -> bool:
    """Whether a text that was cut off has the form of a token so far: a key id of the ring and base64."""
    key_id, _, token = text.partition(":")
    return key_id in keyring.ids(keyring.SECRETS) and re.fullmatch(r"[\w-]*=*", token) is not None


def _is_secret_whole(tool: str, args: Any) -> bool:
    return _opens(args, place(tool, "args"))


def _opens(value: Any, where: bytes) -> bool:
    if not is_sealed(value):
        return False
    try:
        unseal(value, where)
    except (NotOurs, KeyMissing):
        return False
    return True
