"""A security key made of software, which answers the requests of a page as one in a browser does."""

import hashlib
import json
import secrets
from base64 import urlsafe_b64encode
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.webauthn import AttestedCredentialData, AuthenticatorData

ORIGIN = "http://localhost"
FLAGS = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV


class SecurityKey:
    """One key with one credential."""

    def __init__(self) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._id = secrets.token_bytes(16)
        self._uses = 0

    def create(self, options: dict[str, Any]) -> str:
        """Return the answer to the options of a registration, as JSON."""
        public = options["publicKey"]
        cose = ES256.from_cryptography_key(self._private.public_key())
        credential = AttestedCredentialData.create(b"\0" * 16, self._id, cose)
        data = AuthenticatorData.create(
            _digest(public["rp"]["id"]),
            FLAGS | AuthenticatorData.FLAG.AT,
            0,
            credential,
        )
        # CBOR of {"fmt": "none", "attStmt": {}, "authData": data}
        attestation = (
            b"\xa3"
            + _text("fmt")
            + _text("none")
            + _text("attStmt")
            + b"\xa0"
            + _text("authData")
            + _bytes(data)
        )
        response = {"attestationObject": _encoded(attestation), "transports": ["usb"]}
        return self._answer("webauthn.create", public["challenge"], response)

    def get(self, options: dict[str, Any]) -> str:
        """Return the answer to the options of a login, as JSON."""
        public = options["publicKey"]
        self._uses += 1
        data = AuthenticatorData.create(_digest(public["rpId"]), FLAGS, self._uses)
        client = _client_data("webauthn.get", public["challenge"])
        signature = self._private.sign(
            data + hashlib.sha256(client).digest(), ec.ECDSA(hashes.SHA256())
        )
        response = {
            "authenticatorData": _encoded(data),
            "signature": _encoded(signature),
        }
        return self._answer("webauthn.get", public["challenge"], response)

    def _answer(self, kind: str, challenge: str, response: dict[str, Any]) -> str:
        answer = {
            "id": _encoded(self._id),
            "rawId": _encoded(self._id),
            "type": "public-key",
            "clientExtensionResults": {},
            "response": {
                "clientDataJSON": _encoded(_client_data(kind, challenge)),
                **response,
            },
        }
        return json.dumps(answer)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _client_data(kind: str, challenge: str) -> bytes:
    return json.dumps({"type": kind, "challenge": challenge, "origin": ORIGIN}).encode()


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _text(text: str) -> bytes:
    return bytes([0x60 + len(text)]) + text.encode()


def _bytes(data: bytes) -> bytes:
    return b"\x59" + len(data).to_bytes(2) + data
