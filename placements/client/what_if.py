"""`what_if`: what the loss of clusters does to placements."""

import json
import re
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetui.apimachinery.words import counted
from fleetui.errors import BAD_INPUT
from fleetui.remote import RemoteError
from placements.client.operations import loss_variants
from placements.client.output import Console

HOLDS = 1
_CONDITION = re.compile(r"(\w+)\s*>\s*(\d{1,9})\s+of\s+(\S+)")
_PATH = "what-if/resilience"
_NO_REPORT = 409
_PAUSE = 0.5


class FailOn(NamedTuple):
    """A condition such as `unfulfilled>0 of region`, about the worst loss of a level."""

    metric: str
    limit: int
    level: str


def condition(text: str) -> FailOn:
    from placements.explain.loss import METRICS  # noqa: PLC0415 -- as below

    match = _CONDITION.fullmatch(text.strip())
    if match is None or match[1] not in METRICS:
        raise ArgumentTypeError(
            f"{text[:63]!r} is not METRIC>NUMBER of LEVEL; metrics: {', '.join(METRICS)}"
        )
    return FailOn(match[1], int(match[2]), match[3])


def run(console: Console, options: Namespace) -> int:
    """Print the loss of the chosen clusters, or else of every cluster and domain. Raise RemoteError."""
    variants = options.variant or loss_variants()
    if options.cluster or options.label:
        labels = [one.replace("=", ":", 1) for one in options.label]
        for variant in variants:
            body = {"clusters": options.cluster, "labels": labels, "variant": variant}
            print_loss(console, _post(console, "what-if", body))
        return 0
    keys = [part for part in options.keys.split(",") if part]
    report = complete_report(console, {"keys": keys, "variants": list(variants)})
    if options.output == "json":
        console.document(
            {key: report[key] for key in ("keys", "fleetVersion", "totals")}, "json"
        )
    else:
        print_report(console, report)
    for wanted in options.fail_on:
        refuse_where_it_holds(wanted, report["totals"])
    return 0


def print_loss(console: Console, loss: Mapping[str, Any]) -> None:
    # NumPy is imported with it, which the parser of all commands must not wait for.
    from placements.explain.loss import (  # noqa: PLC0415
        VARIANT_NAMES,
        impacts_sentence,
    )

    variant = loss["variant"]
    console.line(
        f"{VARIANT_NAMES[variant]}: {impacts_sentence(loss['fates'][variant])}"
    )
    for row in loss["placements"]:
        counts = f"{row['placedBefore']} to {counted(row['placedAfter'], 'cluster')}"
        console.line(f"  {row['placement']}: {counts}. {row['message']}".rstrip())
    if more := loss["notEvaluated"]:
        console.line(f"  {more} more placements not evaluated")


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    from placements.explain.loss import (  # noqa: PLC0415 -- as above
        VARIANT_NAMES,
        worst_by_level,
    )

    for variant in report["variants"]:
        console.line(f"{VARIANT_NAMES[variant]}:")
        for worst in worst_by_level(report["totals"], variant):
            console.line(f"  {worst.sentence}")


def _post(console: Console, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    content = json.dumps(body).encode()
    answer: dict[str, Any] = console.client.request(
        "POST", path, body=content, content_type="application/json"
    )
    return answer


def complete_report(console: Console, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report when it is complete: each request for it computes a part."""
    report = _post(console, _PATH, body)
    while report["completedAt"] is None:
        time.sleep(_PAUSE)
        latest: dict[str, Any] = {}
        try:
            latest = console.client.request("GET", _PATH, query={"limit": 1})["report"]
        except RemoteError as error:
            if error.status != _NO_REPORT:
                raise
        if latest.get("id") == report["id"]:
            return latest
        report = _post(console, _PATH, body)
    return report


def refuse_where_it_holds(wanted: FailOn, totals: Mapping[str, Any]) -> None:
    """Raise RemoteError where the worst loss of a level is above the limit, or there is no such level."""
    if wanted.level not in totals:
        raise RemoteError(
            f"--fail-on: no level {wanted.level!r}; levels: {', '.join(totals)}",
            returncode=BAD_INPUT,
        )
    for variant, worst in totals[wanted.level].items():
        found = worst.get(wanted.metric, {"count": 0, "value": ""})
        if found["count"] > wanted.limit:
            where = f"{wanted.level} {found['value']}, {variant}"
            breach = f"{wanted.metric} {found['count']} > {wanted.limit} ({where})"
            raise RemoteError(f"--fail-on: {breach}", returncode=HOLDS)
