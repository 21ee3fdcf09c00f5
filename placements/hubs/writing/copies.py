"""What a person can do without the console: manifest, patch and command for kubectl."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

from fleetui.apimachinery.secrets import without_secrets
from fleetui.apimachinery.yaml import dump_yaml
from placements.hubs.write_bodies import set_at, without_paths
from placements.hubs.write_requests import Verb, WriteRequest
from placements.hubs.writing.planning import WritePlan

_PRECONDITIONS = (("metadata", "uid"), ("metadata", "resourceVersion"))


@dataclass(frozen=True, slots=True)
class WriteCopies:
    """The same write for kubectl; `patch` is "" where the manifest or the command is complete."""

    manifest: str
    patch: str
    command: str


def copies_of(plan: WritePlan, *, manager: str) -> WriteCopies | None:
    """Return how kubectl makes a planned write; None where it changes nothing."""
    request = plan.request
    if request is None:
        return None
    place = (
        f" --namespace {shlex.quote(request.namespace)}" if request.namespace else ""
    )
    subject = f"{request.kind.resource} {shlex.quote(request.name)}{place}"
    if request.verb is Verb.CREATE:
        return WriteCopies(
            dump_yaml(request.stored_body), "", "kubectl create -f manifest.yaml"
        )
    if request.verb is Verb.DELETE:
        return WriteCopies("", "", f"kubectl delete {subject}")
    if request.subresource:
        manifest = dump_yaml(without_paths(request.stored_body, _PRECONDITIONS))
        options = f"--server-side --subresource={request.subresource} --field-manager={shlex.quote(manager)}"
        return WriteCopies(manifest, "", f"kubectl apply {options} -f manifest.yaml")
    patch = patch_of(plan, request)
    manifest = dump_yaml(without_secrets(plan.manifest)) if plan.manifest else ""
    text = json.dumps(patch, separators=(",", ":"), ensure_ascii=False)
    return WriteCopies(
        manifest,
        dump_yaml(patch),
        f"kubectl patch {subject} --type merge --patch {shlex.quote(text)}",
    )


def patch_of(plan: WritePlan, request: WriteRequest) -> dict[str, Any]:
    """Return a JSON merge patch without preconditions."""
    patch = without_paths(
        request.stored_body,
        [*_PRECONDITIONS, ("metadata", "name"), ("metadata", "namespace")],
    )
    for key in ("apiVersion", "kind"):
        patch.pop(key, None)
    for path in plan.foreign:
        set_at(patch, path, None)
    return patch
