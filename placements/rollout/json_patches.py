"""Applying JSON patches to manifests (RFC 6902); the only importer of the library that does it."""

import re
from collections.abc import Mapping
from typing import Any

import jsonpatch

from placements.scheduling.door.override_documents import JsonPatch, PatchOperator

_NOT_THERE = re.compile(r" not found in .*", re.DOTALL)
"""What the library says of a missing member: it writes out all that is there, also what a Secret holds."""


class PatchError(ValueError):
    """A patch does not fit the manifest; the text says why."""


def patched(manifest: Mapping[str, Any], patch: JsonPatch, value: Any) -> dict[str, Any]:
    """Give a copy of a manifest with one patch applied, with this value in the place of its own.

    Raises PatchError.
    """
    operation: dict[str, Any] = {"op": patch.op.value, "path": patch.path}
    if patch.op is not PatchOperator.REMOVE:
        operation["value"] = value
    try:
        found: dict[str, Any] = jsonpatch.apply_patch(dict(manifest), [operation])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError) as error:
        raise PatchError(_NOT_THERE.sub(" not found", str(error))) from error
    return found
