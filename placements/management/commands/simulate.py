"""manage.py simulate: which clusters of a fleet would be picked, and why. Needs no database."""

import errno
import json
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import import_string

from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.model import SUPPORTED_SEMANTICS, Semantics
from fleetui.apimachinery.yaml import dump_yaml
from placements.engine.advice.search import why_not
from placements.engine.exact.record import (
    ExactVerdict,
    OpenReason,
    SearchOptions,
    exact_search,
)
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.explain.decision_document import (
    advice_document,
    comparison_document,
    decision_document,
)
from placements.explain.decision_tables import comparison_csv, outcome_csv
from placements.explain.exact import exact_text
from placements.explain.terminal import comparison_text, decision_text, warning_note
from placements.services.impact.kustomize import Render
from placements.services.simulate.cases import answers
from placements.services.simulate.request import (
    BadInputError,
    Request,
    RequestSource,
    Simulation,
    compared,
    simulate,
    simulate_all,
)

FULFILLED, NOT_FULFILLED, BAD_INPUT, NOT_DETERMINED = 0, 1, 2, 3
_LONGEST_SEARCH = 600
STANDARD_INPUT = "-"
ALL = "all"
_FORMATS = {
    False: ("without --diff", ("table", "json", "yaml", "csv")),
    True: ("with --diff", ("markdown", "json", "sarif")),
}
_PARTS = ("exact", "conflict", "shopping")
_ONLY_WITH_DIFF = (
    "path",
    "fleet",
    "render",
    "require_render",
    "renames",
    "values",
    "console",
)
_NOT_WITH_DIFF = (
    "clusters",
    "placement",
    "name",
    "snapshot",
    "semantics",
    "step",
    "why",
    "cases",
)
_NOT_WITH_CASES = (
    "clusters",
    "placement",
    "name",
    "bindings",
    "snapshot",
    "semantics",
    "step",
    "why",
)


class _Rule(NamedTuple):
    """Options that need one of the others, or that none of them goes with."""

    options: tuple[str, ...]
    verb: str
    others: tuple[str, ...]


_NEED = "goes with"
_EXCLUDE = "does not go with"
_RULES = (
    _Rule(("step", "why"), _EXCLUDE, ("csv", ALL)),
    _Rule(("limit",), _NEED, _PARTS),
    _Rule(_PARTS, _EXCLUDE, (ALL, "cases", "step", "why", "csv")),
    _Rule(_ONLY_WITH_DIFF, _NEED, ("diff",)),
    _Rule((*_PARTS, *_NOT_WITH_DIFF), _EXCLUDE, ("diff",)),
    _Rule(("snapshot",), _NEED, ("bindings",)),
    _Rule(_NOT_WITH_CASES, _EXCLUDE, ("cases",)),
)


def _seconds(text: str) -> float:
    """Parse the value of --limit: a number of seconds, with or without `s`."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0
    if not 0 < seconds <= _LONGEST_SEARCH:
        raise ArgumentTypeError(
            f"{text!r} is not a time up to {_LONGEST_SEARCH}s, such as 10s"
        )
    return seconds


def _rename(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not (old and separator and new):
        raise ArgumentTypeError(f"{text[:63]!r} is not OLD=NEW")
    return old, new


def _moment(text: str) -> datetime | None:
    """Parse the value of --now; None means `file`."""
    if text == "file":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "`file` or a time such as 2026-11-20T12:00:00Z"
        raise ArgumentTypeError(f"{text!r} is not {allowed}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--clusters": {
        "metavar": "FILE",
        "help": "what import_clusters reads, or plain cases; - is stdin",
    },
    "--placement": {
        "metavar": "FILE",
        "help": "a placement of KubeFleet, or an OCM Placement",
    },
    "--name": {
        "help": "which placement of the file, when it holds several",
    },
    "--bindings": {
        "metavar": "FILE|URL",
        "help": "plain cases, or bindings of KubeFleet; URL: of --diff, those on a console",
    },
    "--snapshot": {
        "metavar": "NAME",
        "help": "the current policy snapshot, by default the newest; new: a changed policy",
    },
    "--semantics": {
        "choices": [*map(str, SUPPORTED_SEMANTICS), ALL],
        "help": "instead of the document's; all: side by side",
    },
    "-o --output": {
        "choices": ["table", "json", "yaml", "csv", "markdown", "sarif"],
        "help": "default: table, with --diff markdown",
    },
    "--step": {
        "type": int,
        "metavar": "K",
        "help": "all candidates of round K",
    },
    "--why": {
        "metavar": "CLUSTER",
        "help": "why not this cluster, and what would have to change",
    },
    "--exact": {
        "action": "store_true",
        "help": "whether the number is possible, and the best set",
    },
    "--conflict": {
        "action": "store_true",
        "help": "which rules make the number impossible",
    },
    "--shopping": {
        "action": "store_true",
        "help": "which clusters are missing for the number",
    },
    "--limit": {
        "type": _seconds,
        "metavar": "10s",
        "help": "time for the exact search, 10s by default",
    },
    "--now": {
        "type": _moment,
        "default": "file",
        "metavar": "TIME|file",
        "help": "when heartbeats are judged; file: at the newest",
    },
    "--strict-health": {
        "action": "store_true",
        "help": "a cluster without a status is not ready",
    },
    "--diff": {
        "nargs": 2,
        "metavar": ("BASE", "HEAD"),
        "help": "compare two git revisions or folders",
    },
    "--path": {
        "action": "append",
        "metavar": "PATH",
        "help": "of --diff: only below this (repeatable)",
    },
    "--fleet": {
        "metavar": "FILE|URL",
        "help": "of --diff: the clusters of both sides; URL: of a console (default: MemberClusters of the"
        " sides, else the console of FLEETUI_SERVER)",
    },
    "--render": {
        "choices": list(map(str, Render)),
        "help": "of --diff: auto (default) builds kustomizations and Helm charts that have placements, if"
        " it can; kustomize builds each --path",
    },
    "--values": {
        "action": "append",
        "metavar": "FILE",
        "help": "of --diff: values of the Helm chart that it is in, else of all charts (repeatable)",
    },
    "--console": {
        "metavar": "URL",
        "help": "of --diff: each row of the Markdown links to a preview on this console",
    },
    "--require-render": {
        "action": "store_true",
        "help": "of --diff: exit status 3 where a kustomization or chart could not be built",
    },
    "--renames": {
        "action": "append",
        "type": _rename,
        "default": [],
        "metavar": "OLD=NEW",
        "help": "of --diff: a placement with another name (repeatable)",
    },
    "--cases": {
        "metavar": "FILE",
        "help": "answer conformance cases, JSON lines, instead",
    },
}


class Command(BaseCommand):
    help = (
        "Decide which clusters of a fleet a placement would get, and say why. "
        "Exit status: 0 fulfilled, 1 not fulfilled or a failed cycle, 2 bad input. "
        "With --exact, --conflict or --shopping: 0 the number is possible, 1 impossible, 3 not determined."
    )
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        for flags, options in _OPTIONS.items():
            parser.add_argument(*flags.split(), **options)

    def handle(self, **options: Any) -> None:
        """Run and print; the exit status is the result."""
        if sys.stdout is None:  # a shell can close it
            raise CommandError(
                "cannot write: standard output is closed", returncode=BAD_INPUT
            )
        _refuse_odd_combinations(options)
        where, formats = _FORMATS[options["diff"] is not None]
        options["output"] = options["output"] or formats[0]
        if options["output"] not in formats:
            raise CommandError(
                f"--output {options['output']} is not possible {where}: {', '.join(formats)}",
                returncode=BAD_INPUT,
            )
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            status = self._run(options)
        except BadInputError as error:
            self.stderr.write(str(error))
            status = BAD_INPUT
        except BrokenPipeError:
            _forget_output()
            status = FULFILLED
        except OSError as error:
            _forget_output()
            raise CommandError(
                f"cannot write: {error.strerror}", returncode=BAD_INPUT
            ) from error
        if status:
            sys.exit(status)

    def _run(self, options: dict[str, Any]) -> int:
        if options["cases"] is not None:
            status = FULFILLED
            for answer in answers(_case_lines(options["cases"])):
                self.stdout.write(json.dumps(answer, ensure_ascii=False))
                if "error" in answer and "line" in answer:
                    status = BAD_INPUT
            return status
        if options["diff"] is not None:
            # Without it the command runs before the models are loaded.
            run_diff = import_string("placements.management.impact_command.run_diff")
            text, status = run_diff(options, self.stderr)
            self.stdout.write(text, ending="")
            return status
        if options["semantics"] == ALL:
            simulations = simulate_all(_request(options))
            comparison = compared(simulations)
            text = _render_all(simulations, comparison, options["output"])
            is_fulfilled = comparison.is_fulfilled
        else:
            simulation = simulate(_request(options))
            if parts := [name for name in _PARTS if options[name]]:
                return self._run_exact(simulation, parts, options)
            text = _render(simulation, options)
            is_fulfilled = simulation.decision.is_fulfilled
        self.stdout.write(text, ending="")
        self.stdout.flush()
        return FULFILLED if is_fulfilled else NOT_FULFILLED

    def _run_exact(
        self, simulation: Simulation, parts: list[str], options: dict[str, Any]
    ) -> int:
        """Print the decision with its exact search, or with the parts of it that were named."""
        decision, seconds = simulation.decision, options["limit"]
        search = (
            SearchOptions() if seconds is None else SearchOptions(limit_seconds=seconds)
        )
        record = exact_search(decision, search)
        if options["output"] == "table":
            text = exact_text(record, decision.cycle.policy, parts=parts)
            text = (
                f"{_render(simulation, options)}\n{text}" if "exact" in parts else text
            )
        else:
            text = _dump(record.to_plain(), options["output"])
        self.stdout.write(text, ending="")
        self.stdout.flush()
        if record.verdict is ExactVerdict.OPEN:
            is_done = (
                record.reason is OpenReason.NOTHING_TO_PICK and decision.is_fulfilled
            )
            return FULFILLED if is_done else NOT_DETERMINED
        return FULFILLED if record.is_possible else NOT_FULFILLED


def _forget_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_odd_combinations(options: dict[str, Any]) -> None:
    given = [
        name
        for name, value in options.items()
        if value is not None and value is not False and value != []
    ]
    given += [
        word
        for word in ("csv", ALL)
        if word in (options["output"], options["semantics"])
    ]
    for rule in _RULES:
        chosen = [name for name in rule.options if name in given]
        others = [name for name in rule.others if name in given]
        if chosen and bool(others) is not (rule.verb is _NEED):
            named = " or ".join(map(_written, others[:1] or rule.others))
            raise CommandError(
                f"{_written(chosen[0])} {rule.verb} {named}", returncode=BAD_INPUT
            )


def _written(option: str) -> str:
    return option if option in ("csv", ALL) else f"--{option.replace('_', '-')}"


def _request(options: dict[str, Any]) -> Request:
    missing = [
        f"--{name}" for name in ("clusters", "placement") if options[name] is None
    ]
    if missing:
        raise CommandError(
            f"{' and '.join(missing)} needed, or --cases", returncode=BAD_INPUT
        )
    files = {
        name: options[name]
        for name in ("clusters", "placement", "bindings")
        if options[name] is not None
    }
    if list(files.values()).count(STANDARD_INPUT) > 1:
        raise CommandError(
            "only one file can be -, standard input", returncode=BAD_INPUT
        )
    sources: dict[str, RequestSource] = {}
    for option, name in files.items():
        try:
            content: Any = (
                sys.stdin.buffer.read()
                if name == STANDARD_INPUT
                else Path(name).read_bytes()
            )
        except OSError as error:
            content = error
        except (
            AttributeError
        ):  # a shell can close standard input, and Python then has none
            content = OSError(errno.EBADF, "standard input is closed")
        sources[option] = RequestSource(name, content)
    return Request(
        sources["clusters"],
        sources["placement"],
        sources.get("bindings"),
        name=options["name"],
        snapshot=options["snapshot"],
        semantics=None
        if options["semantics"] in (None, ALL)
        else Semantics(options["semantics"]),
        now=options["now"],
        strict_health=options["strict_health"],
    )


def _case_lines(name: str) -> Iterator[bytes]:
    if name == STANDARD_INPUT:
        yield from sys.stdin.buffer
        return
    try:
        source = Path(name).open("rb")  # noqa: SIM115 -- closed below; an error of the reader is none of the file
    except OSError as error:
        raise CommandError(
            f"{name}: cannot be read: {error.strerror}", returncode=BAD_INPUT
        ) from error
    with source:
        yield from source


def _render(simulation: Simulation, options: dict[str, Any]) -> str:
    """Return the decision in the output format, with all candidates of `--step` and the advice of `--why`."""
    decision, output, step, cluster = (
        simulation.decision,
        options["output"],
        options["step"],
        options["why"],
    )
    if cluster is not None and cluster not in decision.cycle.fleet.positions:
        raise CommandError(
            f"--why: the fleet has no cluster {cluster!r}", returncode=BAD_INPUT
        )
    advice = None if cluster is None else why_not(decision, cluster)
    try:
        if output == "csv":
            return outcome_csv(decision)
        if output == "table":
            time = simulation.judged_at
            notes = (
                [f"heartbeats judged at {time.isoformat()}"] if time is not None else []
            )
            notes += map(warning_note, simulation.warnings)
            return decision_text(
                decision,
                placement=simulation.placement,
                notes=notes,
                step=step,
                advice=advice,
            )
        document = decision_document(decision, warnings=simulation.warnings, step=step)
    except IndexError as error:
        raise CommandError(f"--step: {error}", returncode=BAD_INPUT) from error
    if advice is not None:
        document["why"] = advice_document(advice, decision)
    return _dump(document, output)


def _render_all(
    simulations: dict[Semantics, Simulation],
    comparison: SemanticsComparison,
    output: str,
) -> str:
    if output == "csv":
        return comparison_csv(comparison)
    if output != "table":
        warnings = {
            semantics: simulation.warnings
            for semantics, simulation in simulations.items()
        }
        return _dump(comparison_document(comparison, warnings=warnings), output)
    # Each warning once, with the names of its semantics unless it is of all.
    about = grouped(
        (warning_note(warning), str(semantics))
        for semantics, simulation in simulations.items()
        for warning in simulation.warnings
    )
    notes = [
        note
        if len(names) == len(simulations)
        else note.replace("warning", f"warning ({', '.join(names)})", 1)
        for note, names in about.items()
    ]
    placement = next(iter(simulations.values())).placement
    return comparison_text(comparison, placement=placement, notes=notes)


def _dump(document: dict[str, Any], output: str) -> str:
    return (
        dump_yaml(document)
        if output == "yaml"
        else json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    )
