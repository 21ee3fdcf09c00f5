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
_SUBJECT = (("metadata", "name"), ("metadata", "namespace"), ("apiVersion",), ("kind",))


@dataclass(frozen=True, slots=True)
class WriteCopies:
    """The same write for kubectl; `patch` is "" where the manifest or the command is complete."""

    command: str
    manifest: str = ""
    patch: str = ""


def copies_of(plan: WritePlan, *, manager: str) -> WriteCopies | None:
    """Return how kubectl makes a planned write; None where it changes nothing."""
    request = plan.request
    if request is None:
        return None
    subject = f"{request.kind.resource} {shlex.quote(request.name)}"
    if request.namespace:
        subject += f" --namespace {shlex.quote(request.namespace)}"
    if request.verb is Verb.CREATE:
        manifest = dump_yaml(request.stored_body)
        return WriteCopies("kubectl create -f manifest.yaml", manifest)
    if request.verb is Verb.DELETE:
        return WriteCopies(f"kubectl delete {subject}")
    if request.subresource:
        manifest = dump_yaml(without_paths(request.stored_body, _PRECONDITIONS))
        options = f"--server-side --subresource={request.subresource} --field-manager={shlex.quote(manager)}"
        return WriteCopies(f"kubectl apply {options} -f manifest.yaml", manifest)
    patch = patch_of(plan, request)
    text = json.dumps(patch, separators=(",", ":"), ensure_ascii=False)
    command = f"kubectl patch {subject} --type merge --patch {shlex.quote(text)}"
    manifest = dump_yaml(without_secrets(plan.manifest)) if plan.manifest else ""
    return WriteCopies(command, manifest, dump_yaml(patch))


def patch_of(plan: WritePlan, request: WriteRequest) -> dict[str, Any]:
    """Return a JSON merge patch without preconditions."""
    patch = without_paths(request.stored_body, [*_PRECONDITIONS, *_SUBJECT])
    for path in plan.foreign:
        set_at(patch, path, None)
    return patch
