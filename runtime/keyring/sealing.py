"""Seals secret values, opens them, and recognises sealed values.

A sealed value is `{"$secret": "<key id>:<ciphertext>.<tag>"}`. The ciphertext is AES-256-GCM (NIST SP 800-38D) over
the value's JSON with a random nonce in front, under a key of the purpose `secrets`. The place it belongs to, a tool
and an argument or its result, is authenticated with it. The tag is HMAC-SHA-256, cut to 16 bytes, over everything
before it, under a key that is derived from the same one (HKDF-Expand, RFC 5869). The tag proves, without the place,
that this installation made the token. A model can write `{"$secret": "..."}` too; pages must not hide such a value.

A held value is what only reviewers may read until it is released: arguments of a call, and the texts shown with it. It
is sealed like a secret, but for a location of its own. Every page and answer hides it, except from the reviewers.
"""

import base64
import binascii
import hmac
import json
import os
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from runtime.errors import KeyMissing
from runtime.keyring import files, purposes

MARK = "$secret"
REDACTED = "••••"
HELD = "held"  # the location of an argument that reviewers may read
WHOLE = "arguments"  # the name for arguments that are not an object
NONCE_BYTES = 12
TAG_BYTES = 16

_TAG_LABEL = b"signoff.secrets.tag.v1"


class NotOurs(ValueError):
    """The token was not sealed by this installation, or not for this location."""


def encode_location(tool: str, *path: str) -> bytes:
    """Return the location that a secret is bound to: `args`, `args` and a name, `reply` or `result` of a tool."""
    return json.dumps([tool, *path]).encode()


_TEXT = encode_location("", HELD)


def seal(value: Any, location: bytes) -> dict[str, str]:
    """Seal a JSON value for a location."""
    key_id, key = files.read_current_key(purposes.SECRETS)
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = _encode_base64(
        nonce + AESGCM(key).encrypt(nonce, json.dumps(value).encode(), location)
    )
    token = f"{key_id}:{ciphertext}"
    return {MARK: f"{token}.{_tag(key, token)}"}


def unseal(sealed: dict[str, str], location: bytes) -> Any:
    """Return the value of a token whose tag verifies. Raises NotOurs, KeyMissing."""
    key_id, text, tag = _split_token(sealed[MARK])
    key = files.read_key(purposes.SECRETS, key_id)
    if not _is_tag(tag, key, f"{key_id}:{text}"):
        raise NotOurs
    try:
        ciphertext = base64.urlsafe_b64decode(text)
        value = AESGCM(key).decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], location)
    except (InvalidTag, ValueError, binascii.Error) as exc:
        raise NotOurs from exc
    return json.loads(value)


def was_made_here(value: Any) -> bool:
    """Return whether this installation sealed the value, for any place."""
    if not is_sealed(value):
        return False
    key_id, text, tag = _split_token(value[MARK])
    try:
        key = files.read_key(purposes.SECRETS, key_id)
    except KeyMissing:
        return False
    return _is_tag(tag, key, f"{key_id}:{text}")


def is_sealed(value: Any) -> bool:
    """Return whether the value has the shape of a sealed value. Models can produce that shape too."""
    return isinstance(value, dict) and value.keys() == {MARK} and isinstance(value[MARK], str)


def has_sealed_mark(value: Any) -> bool:
    """Return whether any part of a JSON value has the mark of a sealed value, genuine or not."""
    match value:
        case dict():
            return MARK in value or any(has_sealed_mark(item) for item in value.values())
        case list():
            return any(has_sealed_mark(item) for item in value)
        case _:
            return False


def redact_args(tool: str, args: Any) -> Any:
    """Return the arguments of a call with a placeholder for each secret that was sealed for exactly its location.

    All other values are shown in full, including forged ones that only look sealed.
    """
    if _is_secret_whole(tool, args):
        return REDACTED
    if not isinstance(args, dict):
        return args
    hidden = list_secret_args(tool, args)
    if not hidden:
        return args
    return {name: REDACTED if name in hidden else value for name, value in args.items()}


def list_secret_args(tool: str, args: Any) -> frozenset[str]:
    """Return the names of the arguments that were sealed for exactly their location.

    If all arguments were sealed as one value, return the mark and the name that pages use for such arguments.
    """
    if _is_secret_whole(tool, args):
        return frozenset({MARK, WHOLE})
    if not isinstance(args, dict):
        return frozenset()
    return frozenset(
        name
        for name, value in args.items()
        if isinstance(value, dict)
        and is_sealed(value)
        and (_can_unseal(value, encode_location(tool, "args", name)) or is_held(tool, name, value))
    )


def open_secret_args(tool: str, args: Any) -> Any:
    """Return the arguments of a call with each secret opened that was sealed for its location. Never show them."""
    if _is_secret_whole(tool, args):
        return unseal(args, encode_location(tool, "args"))
    if not isinstance(args, dict):
        return args
    plain = dict(args)
    for name, value in args.items():
        if not is_sealed(value):
            continue
        for location in (encode_location(tool, "args", name), encode_location(tool, HELD, name)):
            if _can_unseal(value, location):
                plain[name] = unseal(value, location)
                break
    return plain


def is_held(tool: str, name: str, value: Any) -> bool:
    """Return whether this argument was sealed for exactly its location, to be read by reviewers."""
    return is_sealed(value) and _can_unseal(value, encode_location(tool, HELD, name))


def list_held_args(tool: str, arguments: Any) -> frozenset[str]:
    """Return the names of the arguments that were held for exactly their location."""
    if not isinstance(arguments, dict):
        return frozenset()
    values = [(name, value) for name, value in arguments.items() if isinstance(value, dict)]
    return frozenset(name for name, value in values if is_held(tool, name, value))


def seal_arg(tool: str, name: str, value: Any) -> dict[str, str]:
    """Seal an argument for its location."""
    return seal(value, encode_location(tool, HELD, name))


def seal_args(tool: str, arguments: Any) -> dict[str, str]:
    """Seal all arguments of a call as one value."""
    return seal(arguments, encode_location(tool, "args"))


def open_args(tool: str, arguments: Any) -> Any:
    """Open arguments that were sealed as one value; return any others unchanged. Raise KeyMissing."""
    if not is_sealed(arguments):
        return arguments
    try:
        return unseal(arguments, encode_location(tool, "args"))
    except NotOurs:
        return arguments


def open_args_for_reviewers(tool: str, arguments: Any) -> Any:
    """Return the arguments of a call as its reviewers read them: held ones opened, secret ones as a placeholder."""
    redacted, held_names = redact_args(tool, arguments), list_held_args(tool, arguments)
    if not held_names:
        return redacted
    unsealed = {
        name: unseal(arguments[name], encode_location(tool, HELD, name))
        for name in sorted(held_names)
    }
    return {**redacted, **unsealed}


def seal_held_text(text: str, max_characters: int | None = None) -> str:
    """Return the sealed text. Cut the text first if its sealed form would have more than `max_characters`."""
    if not text:
        return ""
    token = json.dumps(seal(text, _TEXT))
    while max_characters is not None and len(token) > max_characters:
        text = text[: len(text) * max_characters // len(token) - 1]
        token = json.dumps(seal(text, _TEXT))
    return token


def open_text(text: str) -> str:
    """Open a sealed text; return any other text unchanged. Raise NotOurs or KeyMissing."""
    sealed = _parse_token(text)
    return str(unseal(sealed, _TEXT)) if was_made_here(sealed) else text


def is_token(value: Any) -> bool:
    """Return whether a text, or all arguments of a call, are a value that was sealed here and would be opened."""
    return was_made_here(_parse_token(value) if isinstance(value, str) else value)


def text_for_reviewers(text: str) -> str:
    """Return the text as reviewers read it: opened if it is held, else unchanged."""
    try:
        return open_text(text)
    except (NotOurs, KeyMissing):
        return text


def _is_secret_whole(tool: str, args: Any) -> bool:
    return is_sealed(args) and _can_unseal(args, encode_location(tool, "args"))


def _can_unseal(value: Any, location: bytes) -> bool:
    """Return whether a sealed value was sealed for this location."""
    try:
        unseal(value, location)
    except (NotOurs, KeyMissing):
        return False
    return True


def _split_token(token: str) -> tuple[str, str, str]:
    """Split a token into key id, ciphertext and tag."""
    key_id, _, text_and_tag = token.partition(":")
    text, _, tag = text_and_tag.partition(".")
    return key_id, text, tag


def _is_tag(tag: str, key: bytes, token: str) -> bool:
    return hmac.compare_digest(tag.encode("utf-8", "surrogatepass"), _tag(key, token).encode())


def _tag(key: bytes, token: str) -> str:
    """Compute the tag over the base64 text, not the bytes: several texts decode to the same bytes."""
    subkey = HKDFExpand(algorithm=SHA256(), length=32, info=_TAG_LABEL).derive(key)
    data = token.encode("utf-8", "surrogatepass")
    return _encode_base64(hmac.digest(subkey, data, "sha256")[:TAG_BYTES])


def _encode_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


def _parse_token(text: str) -> Any:
    """Parse a text that is a token, genuine or not. Return None for any other text."""
    if not text.startswith(f'{{"{MARK}"'):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
