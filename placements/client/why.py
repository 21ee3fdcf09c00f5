"""`why PLACEMENT CLUSTER`: why a cluster is selected or not; `replay PLACEMENT`: whether a hub decided so."""

from argparse import Namespace
from itertools import chain
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from fleetui.errors import REFUSED
from fleetui.remote import RemoteError
from placements.client.objects import list_rows
from placements.client.operations import path_to
from placements.client.output import Console


def run(console: Console, options: Namespace) -> int:
    """Print the outcome of a cluster in a decision, or its replay; by default of the latest decision.

    Raise RemoteError.
    """
    decision = options.decision
    if not decision:
        path = path_to("placements/{name}/decisions", options.placement)
        latest = next(list_rows(console.client, path, {}, most=1), None)
        if latest is None:
            raise RemoteError(
                f"{options.placement} has no decision yet", returncode=REFUSED
            )
        decision = latest["id"]
    if not options.cluster:
        console.document(
            console.client.request("GET", f"decisions/{quote(decision)}/hub"),
            options.output,
        )
        return 0
    path = f"decisions/{quote(decision)}/clusters/{quote(options.cluster)}/advice"
    advice = console.client.request("GET", path)
    if options.output != "table":
        console.document(advice, options.output)
        return 0
    outcome = advice["outcome"]
    console.line(f"{options.cluster}: {outcome['outcome']} (decision {decision})")
    for words in chain(map(itemgetter("words"), outcome["reasons"]), advice["course"]):
        console.line(f"  {words}")
    if advice["today"]:
        console.line(advice["today"])
    for title, key in (("Would change it", "wouldHelp"), ("Would not", "wouldNotHelp")):
        if advice[key]:
            console.line(f"{title}:")
        for one in advice[key]:
            console.line(f"  {_suggestion(one)}")
    return 0


def _suggestion(one: dict[str, Any]) -> str:
    effects = [
        f"{word} {', '.join(one[key])}"
        for word, key in (("selects", "gains"), ("deselects", "losses"))
        if one[key]
    ]
    words: str = one["change"]["words"]
    return f"{words} ({'; '.join(effects)})" if effects else words
