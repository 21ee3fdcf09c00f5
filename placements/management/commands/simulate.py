"""manage.py simulate: which clusters of a fleet would be picked, and why. Needs no database."""

import json
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError, CommandParser

from placements.explain.document import advice_document, decision_document
from placements.explain.tables import outcome_csv
from placements.explain.text import advice_text, decision_text
from placements.manifests import dump_yaml
from placements.scheduling.advice.search import Advice, why_not
from placements.scheduling.semantics import SUPPORTED_SEMANTICS, Semantics
from placements.simulation.cases import answers, is_refusal
from placements.simulation.request import BadInputError, Request, Simulation, Source, simulate

FULFILLED, NOT_FULFILLED, BAD_INPUT = 0, 1, 2
STANDARD_INPUT = "-"


class Command(BaseCommand):
    """Decide and explain one placement on a fleet from files, or answer conformance cases."""

    help = (
        "Decide which clusters of a fleet a placement would get, and say why. "
        "Exit status: 0 fulfilled, 1 not fulfilled or a failed cycle, 2 bad input."
    )
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        add = parser.add_argument
        add("--clusters", metavar="FILE", help="MemberClusters, their List, or plain cases; - is stdin")
        add("--placement", metavar="FILE", help="YAML or JSON with a ClusterResourcePlacement")
        add("--name", help="which placement of the file, when it holds several")
        add("--bindings", metavar="FILE", help="plain cases or ClusterResourceBinding objects")
        add("--snapshot", metavar="NAME", help="the current policy snapshot (default: the newest named)")
        semantics = [str(one) for one in SUPPORTED_SEMANTICS]
        add("--semantics", choices=semantics, help="instead of the annotation's")
        add("-o", "--output", choices=["table", "json", "yaml", "csv"], default="table")
        add("--step", type=int, metavar="K", help="all candidates of round K")
        add("--why", metavar="CLUSTER", help="why not this cluster, and what would have to change")
        add("--now", type=_moment, default="file", metavar="TIME|file", help="when heartbeats are judged")
        add("--strict-health", action="store_true", help="a cluster without a status is not eligible")
        add("--cases", metavar="FILE", help="answer conformance cases, JSON lines, instead")

    def handle(self, **options: Any) -> None:
        """Run, print, and leave with the exit status that says how it came out."""
        if options["cases"] is not None:
            status = self._answer_cases(options["cases"])
        else:
            status = self._simulate(options)
        if status:
            sys.exit(status)

    def _answer_cases(self, name: str) -> int:
        status = FULFILLED
        with _lines(name) as lines:
            for answer in answers(lines):
                self.stdout.write(json.dumps(answer, ensure_ascii=False))
                if is_refusal(answer):
                    status = BAD_INPUT
        return status

    def _simulate(self, options: dict[str, Any]) -> int:
        try:
            simulation = simulate(_request(options))
            advice = _advice(simulation, options["why"])
            text = _render(simulation, options["output"], options["step"], advice)
        except BadInputError as error:
            self.stderr.write(str(error))
            return BAD_INPUT
        except IndexError as error:
            raise CommandError(f"--step: {error}", returncode=BAD_INPUT) from error
        self.stdout.write(text, ending="")
        return FULFILLED if simulation.decision.is_fulfilled else NOT_FULFILLED


def _moment(text: str) -> datetime | None:
    """Read the value of --now; None stands for `file`."""
    if text == "file":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "`file` or a time such as 2026-11-20T12:00:00Z"
        raise ArgumentTypeError(f"{text!r} is not {allowed}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _request(options: dict[str, Any]) -> Request:
    missing = [f"--{name}" for name in ("clusters", "placement") if options[name] is None]
    if missing:
        raise CommandError(f"{' and '.join(missing)} needed, or --cases", returncode=BAD_INPUT)
    files = [options[name] for name in ("clusters", "placement", "bindings")]
    if files.count(STANDARD_INPUT) > 1:
        raise CommandError("only one file can be -, standard input", returncode=BAD_INPUT)
    clusters, placement, bindings = (None if name is None else _source(name) for name in files)
    if clusters is None or placement is None:
        raise CommandError("--clusters and --placement needed", returncode=BAD_INPUT)
    return Request(
        clusters,
        placement,
        bindings,
        name=options["name"],
        snapshot=options["snapshot"],
        semantics=None if options["semantics"] is None else Semantics(options["semantics"]),
        now=options["now"],
        strict_health=options["strict_health"],
    )


def _source(name: str) -> Source:
    try:
        content = sys.stdin.buffer.read() if name == STANDARD_INPUT else Path(name).read_bytes()
    except OSError as error:
        return Source(name, error)
    return Source(name, content)


@contextmanager
def _lines(name: str) -> Iterator[BinaryIO]:
    """Open a file of cases, or standard input, for reading line by line."""
    if name == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as source:
            yield source
    except OSError as error:
        raise CommandError(f"{name}: cannot be read: {error.strerror}", returncode=BAD_INPUT) from error


def _advice(simulation: Simulation, cluster: str | None) -> Advice | None:
    if cluster is None:
        return None
    if cluster not in simulation.decision.cycle.fleet.positions:
        raise CommandError(f"--why: the fleet has no cluster {cluster!r}", returncode=BAD_INPUT)
    return why_not(simulation.decision, cluster)


def _render(simulation: Simulation, output: str, step: int | None, advice: Advice | None) -> str:
    decision, warnings = simulation.decision, simulation.warnings
    if output == "csv":
        return outcome_csv(decision)
    if output == "table":
        text = decision_text(decision, placement=simulation.placement, warnings=warnings, step=step)
        return text if advice is None else f"{text}\n{advice_text(advice)}"
    document = decision_document(decision, warnings=warnings, step=step)
    if advice is not None:
        document["why"] = advice_document(advice)
    if output == "yaml":
        return dump_yaml(document)
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
