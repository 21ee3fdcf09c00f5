"""The actions of users: each is one request, which the operations of the API describe."""

import json
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fleetui.errors import BAD_INPUT, REFUSED
from fleetui.remote import RemoteError
from placements.client.objects import list_rows, values_of
from placements.client.operations import Operation, nouns, path_to
from placements.client.output import Console

_EXISTS = 412
_OUTCOMES = {"not-executed": REFUSED, "invalid": BAD_INPUT}
"""The exit statuses of evictions that were not executed."""


def run(console: Console, options: Namespace) -> int:
    """Send the request of an action, and print its message or the response. Raise RemoteError."""
    match getattr(options, "do", ""):
        case "rollout status":
            return _rollout_status(console, options)
        case "staged start":
            return _staged_start(console, options)
    operations: list[Operation] = options.operations
    is_read = getattr(options, "dry_run", False)
    operation = next(
        (one for one in operations if (one.method == "GET") is is_read), operations[0]
    )
    fields = values_of(options, "field", operation.fields)
    body = {**operation.body, **fields}
    answer = console.client.request(
        operation.method,
        path_to(operation.path, options.name),
        query=values_of(options, "query", operation.query),
        body=json.dumps(body).encode() if body or operation.fields else None,
        content_type="application/json",
    )
    noun = operation.path.partition("/")[0]
    if options.output == "name":
        console.line(f"{nouns()[noun].singular}/{options.name}")
    elif options.output in ("json", "yaml"):
        console.document(answer, options.output)
    elif operation.method == "GET" or not operation.message:
        console.document(answer, "yaml")
    else:
        named = {"name": options.name, "value": ", ".join(map(str, fields.values()))}
        console.line(_message(operation.message, answer, named))
    return 0


def _message(template: str, answer: Any, named: Mapping[str, str]) -> str:
    """Return the message of an action with the facts of the response. Raise RemoteError."""
    facts = answer if isinstance(answer, dict) else {}
    text = template.format_map({"result": facts.get("message"), **facts, **named})
    outcome = facts.get("outcome")
    if outcome in _OUTCOMES:
        raise RemoteError(text, returncode=_OUTCOMES[outcome])
    return text


def _rollout_status(console: Console, options: Namespace) -> int:
    latest = next(
        list_rows(console.client, "rollouts", {"placement": options.name}, most=1), None
    )
    if latest is None or latest["placementIsDeleted"]:
        console.client.request("GET", path_to("placements/{name}", options.name))
        console.line(f"{options.name} has no rollout yet")
        return 0
    path = path_to("rollouts/{name}/{number}", f"{options.name}/{latest['number']}")
    console.document(console.client.request("GET", path), options.output)
    return 0


def _staged_start(console: Console, options: Namespace) -> int:
    """Save the run, as an apply of its manifest does; a name that exists is refused."""
    namespace, _, placement = options.placement.rpartition("/")
    spec = {"placementName": placement, "stagedRolloutStrategyName": options.strategy}
    if options.snapshot:
        spec["resourceSnapshotIndex"] = options.snapshot.removeprefix("r")
    spec["state"] = "Initialize" if options.prepare else "Run"
    metadata = {"name": options.run_name}
    name = options.run_name
    if namespace:
        metadata["namespace"] = namespace
        name = f"{namespace}/{name}"
    kind = "StagedUpdateRun" if namespace else "ClusterStagedUpdateRun"
    document = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }
    try:
        console.client.request(
            "PUT",
            path_to("staged-runs/{name}", name),
            body=json.dumps(document).encode(),
            content_type="application/json",
            is_new=True,
        )
    except RemoteError as error:
        if error.status != _EXISTS:
            raise
        raise RemoteError(
            f"a run is named {name} already; run names cannot be reused",
            returncode=BAD_INPUT,
        ) from error
    done = "created; start it with `staged resume`" if options.prepare else "started"
    console.line(f"Staged update run {name} {done}.")
    return 0
