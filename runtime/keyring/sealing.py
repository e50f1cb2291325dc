"""Sealed secrets: how a value is encrypted, and which values are really sealed.

A sealed value is `{"$secret": "<key id>:<ciphertext>.<tag>"}`. The ciphertext is AES-256-GCM (NIST SP 800-38D) over
the value's JSON with a random nonce in front, under a key of the purpose `secrets`. The place it belongs to, a tool
and an argument or its result, is authenticated with it. The tag is HMAC-SHA-256, cut to 16 bytes, over everything
before it, under a key that is derived from the same one (HKDF-Expand, RFC 5869). It shows without the place that the
token was made here: a model can write `{"$secret": "..."}` too, and that must hide nothing.

Tokens of releases before have no tag. They open, but only where their place is known.
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
PLACEHOLDER = "••••"
WHOLE = "arguments"  # the one name of arguments that are no object
NONCE_BYTES = 12
TAG_BYTES = 16

_TAG_LABEL = b"abeyance.secrets.tag.v1"


class NotOurs(ValueError):
    """The token was not sealed here, or not for this place."""


def place(tool: str, *path: str) -> bytes:
    """What a secret is bound to: `args`, `args` and a name, `reply` or `result` of a tool."""
    return json.dumps([tool, *path]).encode()


def seal(value: Any, where: bytes) -> dict[str, str]:
    key_id, key = files.current_key(purposes.SECRETS)
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = _base64(nonce + AESGCM(key).encrypt(nonce, _padded(json.dumps(value)), where))
    token = f"{key_id}:{ciphertext}"
    return {MARK: f"{token}.{_tag(key, token)}"}


def unseal(sealed: dict[str, str], where: bytes) -> Any:
    """The value, of a token with a tag that verifies, or with none. Raises NotOurs, KeyMissing."""
    key_id, text, tag = _parts(sealed[MARK])
    key = files.key_of(purposes.SECRETS, key_id)
    if tag is not None and not _is_tag(tag, key, f"{key_id}:{text}"):
        raise NotOurs
    try:
        ciphertext = base64.urlsafe_b64decode(text)
        value = AESGCM(key).decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], where)
    except (InvalidTag, ValueError, binascii.Error) as exc:
        raise NotOurs from exc
    return json.loads(value)


def was_made_here(value: Any) -> bool:
    """Whether our own sealing made this, for any place: its tag verifies. No token without a tag does."""
    if not is_sealed(value):
        return False
    key_id, text, tag = _parts(value[MARK])
    if tag is None:
        return False
    try:
        key = files.key_of(purposes.SECRETS, key_id)
    except KeyMissing:
        return False
    return _is_tag(tag, key, f"{key_id}:{text}")


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


def _parts(token: str) -> tuple[str, str, str | None]:
    """Key id, ciphertext and tag, which is None where there is none."""
    key_id, _, rest = token.partition(":")
    text, dot, tag = rest.partition(".")
    return key_id, text, tag if dot else None


def _padded(text: str) -> bytes:
    """JSON that base64 ends with `=` once it is encrypted, where releases without tags stop reading a token."""
    size = NONCE_BYTES + len(text) + TAG_BYTES
    return (text if size % 3 else text + " ").encode()


def _is_tag(tag: str, key: bytes, token: str) -> bool:
    return hmac.compare_digest(tag.encode("utf-8", "surrogatepass"), _tag(key, token).encode())


def _tag(key: bytes, token: str) -> str:
    """Over the text, not the bytes it stands for: base64 has many texts for the same bytes."""
    subkey = HKDFExpand(algorithm=SHA256(), length=32, info=_TAG_LABEL).derive(key)
    data = token.encode("utf-8", "surrogatepass")
    return _base64(hmac.digest(subkey, data, "sha256")[:TAG_BYTES])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
