"""`change_clusters ACTION [NAME…]`: the same change of many clusters at once."""

import json
from argparse import Namespace
from typing import Any

from clusters.filters import filter_params, parse_filter_text
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteError
from placements.client.objects import values_of
from placements.client.output import Console
from placements.services.fleet.forms import read_cluster


def run(console: Console, options: Namespace) -> int:
    """Send the change, and print that of each cluster. Raise RemoteError."""
    typed = read_cluster("\n".join(options.set), "\n".join(options.add))
    labels: dict[str, str | None] = {**typed.labels}
    removed_taints = ""
    if options.action == "taints":
        removed_taints = "\n".join(options.remove)
    else:
        labels |= dict.fromkeys(options.remove)
    removed = read_cluster("", removed_taints)
    if errors := (*typed.errors, *removed.errors):
        raise RemoteError("\n".join(map(str, errors)), returncode=BAD_INPUT)
    body: dict[str, Any] = {
        "action": options.action,
        "names": options.names,
        "labels": labels,
        "add": typed.taints,
        "remove": removed.taints,
    }
    if options.filter is not None:
        params = filter_params(parse_filter_text(options.filter))
        labels_of_filter = params.pop("label", [])
        body["filter"] = {key: value for key, [value] in params.items()}
        body["filter"]["labels"] = labels_of_filter
    answer = console.client.request(
        "POST",
        "cluster-changes",
        query=values_of(options, "query", ["dryRun"]),
        body=json.dumps(body).encode(),
        content_type="application/json",
    )
    for row in answer["clusters"]:
        about = row["refusal"] or row["conflict"]
        words = f" ({about})" if about else ""
        console.line(f"{row['name']}: {row['change'] or 'unchanged'}{words}")
    for decision in answer["decisions"]:
        counts = f"{decision['placedBefore']} -> {decision['placedAfter']}"
        console.line(
            f"placement {decision['placement']}: {counts} {decision['message']}".rstrip()
        )
    return 0
