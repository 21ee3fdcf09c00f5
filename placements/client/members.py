"""`import_clusters` and `join`: clusters from a file, and one by its kubeconfig. Django is set up before."""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from clusters.drivers.kubernetes.check import (
    FAILED_CHECK,
    OTHER_CLUSTER,
    CheckResult,
    CheckStep,
)
from clusters.kubeconfig_files import read_file, with_embedded_files
from fleetui.apimachinery.errors import raise_errors
from fleetui.apimachinery.words import names_and_more
from fleetui.errors import BAD_INPUT, REFUSED, UNCONFIRMED
from fleetui.remote import RemoteError, RemoteErrors, field_error
from placements.client.objects import values_of
from placements.client.operations import path_to
from placements.client.output import Console
from placements.services.fleet.forms import read_cluster

_MOST_NAMES = 5


def run(console: Console, options: Namespace) -> int:
    """Send a file or a connection, and print the results. Raise RemoteError, FleetError."""
    commands = {"join": join, "import": import_clusters}
    commands[options.do](console, options)
    return 0


def import_clusters(console: Console, options: Namespace) -> None:
    content = read_file(options.file)
    query = values_of(
        options, "query", ("context", "rename", "driver", "confirm", "dryRun")
    )
    try:
        answer = console.client.request(
            "POST", "cluster-imports", query=query, body=content
        )
    except RemoteErrors as error:
        lines = (f"{options.file}: {field_error(one)}" for one in error.errors)
        raise RemoteError("\n".join(lines), returncode=BAD_INPUT) from error
    except RemoteError as error:
        if "confirm" not in error.problem:
            raise
        detail = error.problem["detail"]
        raise RemoteError(
            f"Nothing was imported: {detail}; --confirm imports anyway",
            returncode=UNCONFIRMED,
        ) from error
    for note in answer["notes"]:
        clusters = names_and_more(note["clusters"], _MOST_NAMES)
        about = f" ({clusters})" * bool(clusters)
        console.err.write(f"note: {note['path']}: {note['message']}{about}\n")
    suffix = " (dry run)" * ("dryRun" in query)
    results = answer["items"] + answer["objects"]
    for result in results:
        words = f"{result['name']}: {result['result']}{suffix}: {result['detail']}"
        console.line(words.removesuffix(": "))
    counts = sorted(Counter(result["result"] for result in results).items())
    console.line(", ".join(f"{count} {did}" for did, count in counts) or "no clusters")


def _entered(options: Namespace) -> dict[str, Any]:
    """Return the connection, and the labels and taints of a new cluster. Raise RemoteError, FleetError."""
    typed = read_cluster("\n".join(options.label), "\n".join(options.taint))
    raise_errors(typed.errors)
    more: dict[str, Any] = {}
    if not options.replace:
        more = {"labels": typed.labels, "taints": typed.taints}
    if options.kubeconfig:
        return {
            "kubeconfig": with_embedded_files(options.kubeconfig),
            "context": options.context,
            **more,
        }
    if options.in_cluster:
        return {"inCluster": True, **more}
    raise RemoteError("--kubeconfig or --in-cluster is missing", returncode=BAD_INPUT)


def join(console: Console, options: Namespace) -> None:
    body = _entered(options)
    query = {"joins": str(not options.replace).lower()}
    path = path_to("clusters/{name}/connection", options.name)
    content: dict[str, Any] = {
        "body": json.dumps(body).encode(),
        "content_type": "application/json",
    }
    if options.check:
        found = console.client.request("POST", f"{path}/check", query=query, **content)
        _print_steps(console, found["steps"])
        if not found["passed"]:
            raise RemoteError("The check failed", returncode=REFUSED)
        return
    if options.other_cluster:
        query["confirm"] = OTHER_CLUSTER
    elif options.confirm:
        query["confirm"] = FAILED_CHECK
    try:
        saved = console.client.request("PUT", path, query=query, **content)
    except RemoteError as error:
        if "steps" not in error.problem:
            raise
        _print_steps(console, error.problem["steps"])
        words = CheckResult((), error.problem["confirm"]).how_to_confirm
        raise RemoteError(words, returncode=UNCONFIRMED) from error
    _print_steps(console, saved["steps"])
    if saved["warning"]:
        console.err.write(f"Warning: {saved['warning']}\n")
    done = "saved" if options.replace else "added"
    console.line(f"Member cluster {options.name} {done}")


def _print_steps(console: Console, steps: Sequence[Mapping[str, Any]]) -> None:
    for step in steps:
        console.line(
            CheckStep(step["step"], step["ok"], step["message"], step["hint"]).line
        )
