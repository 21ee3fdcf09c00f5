"""The encryption keys of this console, and manifests with Secret values at rest.

The keys come from FLEETUI_CREDENTIAL_KEYS or the file `credential.keys` in the data directory, which is read
for each use: after a rotation no process has to be restarted.
"""

import json
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from fleetui.apimachinery.secrets import without_secrets
from fleetui.env import is_encryption_key, keep_secret, new_encryption_key

SEALED = "fleetui.io/sealed"
"""The key of the ciphertext in a stored manifest."""


class KeysUnreadable(Exception):
    """The keys are missing or damaged, or none of them decrypts a stored value."""


def encryption_keys() -> tuple[str, ...]:
    """Return the keys, the one that encrypts first. Raise KeysUnreadable."""
    if settings.CREDENTIAL_KEYS:
        keys: tuple[str, ...] = settings.CREDENTIAL_KEYS
        return keys
    try:
        keys = tuple(settings.CREDENTIAL_KEY_FILE.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError) as error:
        raise KeysUnreadable("the file credential.keys is missing") from error
    if not keys or not all(map(is_encryption_key, keys)):
        raise KeysUnreadable("the file credential.keys does not hold Fernet keys")
    return keys


def keep_keys() -> None:
    """Create the key file if there are no keys yet; it is readable by its owner only."""
    if not settings.CREDENTIAL_KEYS:
        keep_secret(settings.CREDENTIAL_KEY_FILE, new_encryption_key)


def cipher() -> MultiFernet:
    """Return the cipher of the keys. Raise KeysUnreadable."""
    return MultiFernet([Fernet(key) for key in encryption_keys()])


def sealed(content: Any) -> Any:
    """Return a manifest, or a list of them, as it is stored: values hidden, and the whole encrypted.

    One without Secret values is stored as it is.
    """
    if isinstance(content, list):
        return [sealed(one) for one in content]
    hidden = without_secrets(content)
    if hidden is content and not (isinstance(content, Mapping) and SEALED in content):
        return content
    keep_keys()
    return {**hidden, SEALED: cipher().encrypt(json.dumps(content).encode()).decode()}


def unsealed(stored: Any) -> Any:
    """Return what `sealed` stored. Raise KeysUnreadable."""
    if isinstance(stored, list):
        return [unsealed(one) for one in stored]
    if not isinstance(stored, Mapping) or SEALED not in stored:
        return stored
    try:
        return json.loads(cipher().decrypt(stored[SEALED].encode()))
    except InvalidToken as error:
        kind, name = stored.get("kind"), (stored.get("metadata") or {}).get("name")
        raise KeysUnreadable(f"no key of this console decrypts the values of {kind} {name}") from error
