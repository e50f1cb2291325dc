"""A passkey in software: it makes what a browser and its authenticator answer, right or wrong as a test asks."""

import json
import os
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import sha256, websafe_decode, websafe_encode
from fido2.webauthn import (
    Aaguid,
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
)

FLAG = AuthenticatorData.FLAG
SITE = "http://testserver"


class Passkey:
    """One credential. `counter` is that of its next signature."""

    def __init__(self, credential_id: bytes = b"") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.id, self.counter = credential_id or os.urandom(16), 1

    def create(self, options: dict[str, Any], site: str = SITE) -> str:
        public: Any = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]
        credential = AttestedCredentialData.create(Aaguid(bytes(16)), self.id, public)
        proof = AuthenticatorData.create(
            sha256(b"testserver"), FLAG.UP | FLAG.UV | FLAG.AT, 0, bytes(credential)
        )
        client = self._client("create", options, site)
        document = AttestationObject.create("none", proof, {})
        return self._answer(clientDataJSON=client, attestationObject=bytes(document))

    def sign(
        self,
        options: dict[str, Any],
        site: str = SITE,
        flags: FLAG = FLAG.UP | FLAG.UV,
        rp: str = "testserver",
    ) -> str:
        client = self._client("get", options, site)
        proof = AuthenticatorData.create(sha256(rp.encode()), flags, self.counter)
        self.counter += 1
        signature = self.key.sign(proof + sha256(client), ec.ECDSA(SHA256()))
        return self._answer(clientDataJSON=client, authenticatorData=proof, signature=signature)

    def _client(self, kind: str, options: dict[str, Any], site: str) -> bytes:
        challenge = websafe_decode(options["publicKey"]["challenge"])
        return bytes(CollectedClientData.create(f"webauthn.{kind}", challenge, site))

    def _answer(self, **response: bytes) -> str:
        document = {
            "id": websafe_encode(self.id),
            "rawId": websafe_encode(self.id),
            "type": "public-key",
            "response": {name: websafe_encode(value) for name, value in response.items()},
        }
        return json.dumps(document)
