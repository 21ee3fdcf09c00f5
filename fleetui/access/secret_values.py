"""Values of Secrets, which columns with manifests are read without: one function has them.

`tests/test_secret_doors.py` lists who calls it.
"""

from typing import Any

from fleetui.access.audit import record_access
from fleetui.encryption import HiddenManifest, HiddenText, decrypted_manifest
from fleetui.permissions import AnyUser, may_view_secrets


def plain_manifest(manifest: Any, *, shown_as: str = "") -> Any:
    """Return a manifest, a list of them or a text with what was hidden when it was read.

    Where a person sees the result, `shown_as` names the object and the access log has a line. What was
    not hidden comes back as it is. Raise KeysUnreadable.
    """
    if shown_as and _is_hidden(manifest):
        record_access("secret values read", shown_as)
    return decrypted_manifest(manifest)


def manifest_for(user: AnyUser, manifest: Any, *, name: str) -> Any:
    """Return a manifest, or a list of them, as a user may see it where nothing is edited."""
    return (
        plain_manifest(manifest, shown_as=name) if may_view_secrets(user) else manifest
    )


def _is_hidden(manifest: Any) -> bool:
    if isinstance(manifest, list):
        return any(map(_is_hidden, manifest))
    return isinstance(manifest, HiddenManifest | HiddenText)
