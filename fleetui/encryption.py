"""The encryption keys of this console, and manifests with Secret values at rest.

The keys come from FLEETUI_CREDENTIAL_KEYS or the file `credential.keys` in the data directory, which is read
for each use: after a rotation no process has to be restarted.
"""

import json
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from fleetui.apimachinery.errors import format_path
from fleetui.apimachinery.secrets import HIDDEN, hidden_places, without_secrets
from fleetui.env import is_encryption_key, keep_secret, new_encryption_key

SEALED = "fleetui.io/sealed"
"""The key of the ciphertext in a stored manifest."""
SEALED_TEXT = "fleetui.io/sealed:"
"""What a stored text begins with that is encrypted."""


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


class HiddenManifest(dict[str, Any]):
    """A manifest as it is read from the database: without values of Secrets, with their ciphertext beside it.

    Without ciphertext the values are not stored anywhere: of live hubs, and in events. It is stored as it was
    read; one that was changed is refused.
    """

    ciphertext: str | None = None


class HiddenText(str):
    """A text as it is read from the database: one word in its place, and the ciphertext beside it."""

    __slots__ = ("ciphertext",)
    ciphertext: str


class HiddenValueStored(ValueError):
    """A manifest that was read without its values would replace them: read it by `plain_manifest`."""


def sealed(content: Any) -> Any:
    """Return a manifest, or a list of them, as it is stored: values hidden, and the whole encrypted.

    One without Secret values is stored as it is. Raise HiddenValueStored.
    """
    if isinstance(content, list):
        return [sealed(one) for one in content]
    if isinstance(content, HiddenManifest):
        return _sealed_again(content)
    shown = without_secrets(content)
    if shown is content and not (isinstance(content, Mapping) and SEALED in content):
        return content
    if places := hidden_places(content):
        raise HiddenValueStored(
            f"{_title(content)} has the value {HIDDEN} at {format_path(places[0])}"
        )
    return {**shown, SEALED: encrypted(json.dumps(content))}


def _sealed_again(hidden: HiddenManifest) -> dict[str, Any]:
    if hidden.ciphertext is None:
        is_same = without_secrets(hidden) == hidden
        stored = _without_seal(hidden)
    else:
        plain = json.loads(decrypted(hidden.ciphertext, _title(hidden)))
        is_same = _without_seal(without_secrets(plain)) == hidden
        stored = {**hidden, SEALED: hidden.ciphertext}
    if not is_same:
        raise HiddenValueStored(
            f"{_title(hidden)} was read without its values and then changed"
        )
    return stored


def hidden(stored: Any) -> Any:
    """Return what `sealed` stored, without values of Secrets."""
    if isinstance(stored, list):
        return [hidden(one) for one in stored]
    if not isinstance(stored, Mapping):
        return stored
    shown = without_secrets(stored)
    if SEALED not in stored and shown is stored:
        return stored
    manifest = HiddenManifest(_without_seal(shown))
    if SEALED in stored:
        manifest.ciphertext = stored[SEALED]
    elif shown != stored:  # by a release that did not seal this kind of manifest
        manifest.ciphertext = encrypted(json.dumps(stored))
    return manifest


def without_values(content: Any) -> Any:
    """Return a manifest to be stored without its values, which are not kept anywhere."""
    shown = without_secrets(content)
    return content if shown is content else HiddenManifest(_without_seal(shown))


def decrypted_manifest(manifest: Any) -> Any:
    """Return the manifest, or the text, whose values were read hidden. Raise KeysUnreadable.

    Only for `plain_manifest` in `fleetui/access/secret_values.py`, which knows who reads it.
    """
    if isinstance(manifest, list):
        return [decrypted_manifest(one) for one in manifest]
    if isinstance(manifest, HiddenText):
        return decrypted(manifest.ciphertext, "a text")
    if isinstance(manifest, HiddenManifest) and manifest.ciphertext is not None:
        return json.loads(decrypted(manifest.ciphertext, _title(manifest)))
    return manifest


def sealed_text(text: str) -> str:
    """Return a text as it is stored: encrypted, unless it is empty."""
    if not text:
        return ""
    return f"{SEALED_TEXT}{text.ciphertext if isinstance(text, HiddenText) else encrypted(text)}"


def hidden_text(stored: str) -> str:
    """Return what stands for a stored text; releases before this one did not encrypt it."""
    if not stored:
        return stored
    is_sealed = stored.startswith(SEALED_TEXT)
    text = HiddenText(HIDDEN)
    text.ciphertext = (
        stored.removeprefix(SEALED_TEXT) if is_sealed else encrypted(stored)
    )
    return text


def encrypted(text: str) -> str:
    keep_keys()
    return cipher().encrypt(text.encode()).decode()


def decrypted(ciphertext: str, title: str) -> str:
    """Return what was encrypted. Raise KeysUnreadable with the title of the object."""
    try:
        return cipher().decrypt(ciphertext.encode()).decode()
    except InvalidToken as error:
        raise KeysUnreadable(
            f"no key of this console decrypts the values of {title}"
        ) from error


def _without_seal(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in content.items() if key != SEALED}


def _title(content: Mapping[str, Any]) -> str:
    return f"{content.get('kind')} {(content.get('metadata') or {}).get('name')}"
