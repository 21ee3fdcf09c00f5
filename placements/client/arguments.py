"""The arguments of all commands: those of actions and nouns are made of the operations of the API."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from typing import Any

from fleetui import LOCAL_HUB_NAME
from fleetui.remote import SERVER, TOKEN
from placements.client.operations import (
    Operation,
    bulk_actions,
    commands,
    loss_variants,
    nouns,
)
from placements.client.what_if import condition

FORMATS = ("table", "wide", "json", "yaml", "name")
IMPORT = "import_clusters"
CONFIRMATION = "unschedule-everything"
FAILED_CHECK = "failed-check"
_MOST_CHOICES = 12
_PART = re.compile(r"([\d.]+)([smh])")
_DURATION = re.compile(r"(\d+(\.\d+)?[smh])+")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_TYPES: dict[str, type] = {"integer": int, "number": float}
_GROUPS = {
    "rollout": "Pause, resume, stop, start, retry or undo the rollout of a placement",
    "removals": "Confirm a removal that waits for a person, or keep the objects",
    "staged": "Preview, start and manage staged update runs, approve their stages",
}


def seconds(text: str) -> float:
    """Parse a time such as 90s, 5m or 1h30m."""
    if not _DURATION.fullmatch(text):
        raise ArgumentTypeError("write a number and s, m or h, such as 5m")
    parts = _PART.findall(text)
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < total <= 7 * 86400:
        raise ArgumentTypeError("write more than 0s, and at most 168h")
    return total


def whole_seconds(text: str) -> int:
    return round(seconds(text))


_NOUN_VERBS = {
    "get": "List objects, or show those with the names",
    "describe": "Show an object with all that belongs to it",
    "delete": "Delete objects",
    "export": "Print objects as manifests, as they were applied",
}
_MANIFEST_VERBS = {
    "apply": "Apply manifests: up to 500 documents all or none, more in batches",
    "diff": "Show what applying manifests would change: status 1 if anything",
}


def new_parser(
    program: str, *, others: str = "", has_kubeconfig: bool = False
) -> ArgumentParser:
    """Return the parser of all commands; `others` are the commands that are not requests.

    With `has_kubeconfig` the hub of a kubeconfig takes the place of this machine.
    """
    parser = ArgumentParser(
        program,
        description=f"Commands for the console of this machine, or for the one that {SERVER} names.",
        epilog=others,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    connection = connection_options()
    if has_kubeconfig:
        hub = connection.add_argument_group("hub without a console").add_argument
        words = "default: that of kubectl"
        hub("--kubeconfig", metavar="FILE", help=words, dest="hub_kubeconfig")
        words = "default: the current one"
        hub("--context", metavar="NAME", help=words, dest="hub_context")
    for verb, words in _NOUN_VERBS.items():
        _add_noun_verb(verbs, verb, words, connection)
    for verb, words in _MANIFEST_VERBS.items():
        _add_manifest_verb(verbs, verb, words, connection)
    _add_questions(verbs, connection)
    _add_checks(verbs, connection)
    _add_what_if(verbs, connection)
    _add_members(verbs, needs_server=has_kubeconfig)
    _add_bulk(verbs, connection)
    groups: dict[str, Any] = {}
    for name, words in _GROUPS.items():
        group = verbs.add_parser(name, help=words)
        groups[name] = group.add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
    for words, operations in commands().items():
        group_name, _, name = words.rpartition(" ")
        if words == IMPORT:
            continue
        _add_action(groups.get(group_name, verbs), name, operations, connection)
    _add_rollouts(groups["rollout"], groups["staged"], connection)
    return parser


def connection_options() -> ArgumentParser:
    parent = ArgumentParser(add_help=False)
    parent.add_argument(
        "--hub", default=LOCAL_HUB_NAME, metavar="NAME", help="default: local"
    )
    parent.add_argument(
        "--as",
        dest="user",
        default="",
        metavar="USER",
        help="on this machine: in the name of this user (default: the system)",
    )
    add = parent.add_argument_group("console over REST").add_argument
    add(
        "--server",
        metavar="URL",
        help=f"address of a console (default: {SERVER}, else this machine)",
    )
    add(
        "--token",
        help=f"visible to all users of this machine: better --token-file, or {TOKEN}",
    )
    add("--token-file", metavar="FILE", help="file with the token")
    add(
        "--ca-file",
        metavar="FILE",
        help="certificates to trust (default: those of the system)",
    )
    add(
        "--insecure-skip-tls-verify", action="store_true", help="accept any certificate"
    )
    add(
        "--allow-http",
        action="store_true",
        help="send the token unencrypted to another machine",
    )
    add(
        "--request-timeout",
        type=seconds,
        metavar="TIME",
        help="of one request (default 60s)",
    )
    return parent


def _add_output(parser: ArgumentParser, *formats: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"default: {formats[0]}",
    )


def _add_noun_verb(
    verbs: Any, verb: str, words: str, connection: ArgumentParser
) -> None:
    """Add a verb such as `get` with a command of each noun that has it."""
    parser = verbs.add_parser(verb, help=words)
    below = parser.add_subparsers(dest="noun", required=True, metavar="NOUN")
    many = "*" if verb in ("get", "export") else "+"
    for noun in nouns().values():
        if verb not in noun.verbs:
            continue
        parser = below.add_parser(
            noun.name, aliases=noun.aliases, help=noun.help, parents=[connection]
        )
        parser.set_defaults(run="objects", do=verb, of=noun)
        names = parser.add_argument("names", nargs=many, metavar="NAME")
        names.noun = noun.name
        if verb == "get":
            for name, field in noun.query.items():
                if name not in ("limit", "hub"):
                    _add_field(parser, name, field, where="query")
            _add_output(parser, *FORMATS)
        elif verb == "export":
            _add_output(parser, "yaml", "json")
            parser.add_argument(
                "--no-status",
                action="store_true",
                help="omit what the hub sets: the status and parts of the metadata",
            )


def _add_field(
    parser: ArgumentParser,
    name: str,
    field: Mapping[str, Any],
    *,
    where: str,
    is_positional: bool = False,
    is_required: bool = True,
) -> None:
    """Add the argument for a field of a body or a query."""
    is_list = field.get("type") == "array"
    one = field["items"] if is_list else field
    options: dict[str, Any] = {"help": field.get("description", "").replace("%", "%%")}
    if 0 < len(one.get("enum", ())) <= _MOST_CHOICES:
        options["choices"] = [each for each in one["enum"] if each]
    if one.get("type") in _TYPES:
        options["type"] = _TYPES[one["type"]]
    if name.endswith("Seconds"):
        options["type"] = whole_seconds
    words = name.removesuffix("Seconds")
    flag = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", words).lower()
    if is_positional:
        if is_list:
            options["nargs"] = "+"
        elif not is_required:
            options["nargs"] = "?"
        parser.add_argument(f"{where}_{name}", metavar=flag.upper(), **options)
        return
    if field.get("type") == "boolean":
        options |= {"action": "store_const", "const": "true"}
    elif is_list:
        options["action"] = "append"
    if "choices" not in options and options.get("action") != "store_const":
        options["metavar"] = flag.upper()
    parser.add_argument(f"--{flag}", dest=f"{where}_{name}", **options)


def _add_action(
    group: Any,
    name: str,
    operations: list[Operation],
    connection: ArgumentParser,
) -> None:
    """Add the command of an action; with an operation that reads what it would do it has `--dry-run`."""
    operation = next((one for one in operations if one.method != "GET"), operations[0])
    parser = group.add_parser(name, help=operation.help, parents=[connection])
    parser.set_defaults(run="actions", operations=operations)
    subject = parser.add_argument("name", metavar="NAME")
    subject.noun = operation.path.partition("/")[0]
    for key, field in sorted(
        operation.fields.items(), key=lambda item: item[0] not in operation.required
    ):
        is_required = key in operation.required
        is_only = len(operation.fields) == 1
        _add_field(
            parser,
            key,
            field,
            where="field",
            is_positional=is_required or is_only,
            is_required=is_required,
        )
    for key, field in operation.query.items():
        _add_field(parser, key, field, where="query")
    if len(operations) > 1:
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="show what it would do; change nothing",
        )
    _add_output(parser, *FORMATS)


def _add_rollouts(rollout: Any, staged: Any, connection: ArgumentParser) -> None:
    status = rollout.add_parser(
        "status", help="Show the latest rollout", parents=[connection]
    )
    status.set_defaults(run="actions", do="rollout status")
    status.add_argument("name", metavar="NAME")
    _add_output(status, "yaml", "json")
    start = staged.add_parser(
        "start", help="Create and start a run", parents=[connection]
    )
    start.set_defaults(run="actions", do="staged start")
    for name, words in (
        ("run_name", "name of the run"),
        ("placement", "NAME, or NAMESPACE/NAME"),
        ("strategy", "staged update strategy"),
    ):
        start.add_argument(name, metavar=name.partition("_")[0].upper(), help=words)
    start.add_argument(
        "--snapshot", metavar="NUMBER", help="older resources, such as 4, or r4"
    )
    start.add_argument(
        "--prepare", action="store_true", help="create the run without starting it"
    )


def _add_manifest_verb(
    verbs: Any, verb: str, words: str, connection: ArgumentParser
) -> None:
    parser = verbs.add_parser(verb, help=words, parents=[connection])
    parser.set_defaults(run="manifests", do=verb)
    add = parser.add_argument
    add(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="file or folder with manifests, - for stdin (repeatable)",
    )
    add("-k", "--kustomize", metavar="FOLDER", help="folder with a kustomization")
    add("-R", "--recursive", action="store_true", help="folders with those below")
    add(
        "--strict",
        action="store_const",
        const="true",
        dest="query_strict",
        help="refuse policies and clusters of other systems",
    )
    if verb == "diff":
        return
    add(
        "--confirm",
        dest="query_confirm",
        choices=[CONFIRMATION],
        help="continue even if a placement would be removed from all clusters",
    )
    add(
        "--dry-run",
        action="store_const",
        const="All",
        dest="query_dryRun",
        help="validate everything and show results and decisions; write nothing",
    )
    add(
        "--prune",
        action="store_true",
        help="delete what has the labels of -l and is not in the files; no clusters",
    )
    add(
        "-l",
        "--selector",
        metavar="KEY=VALUE,…",
        help="labels of what --prune deletes",
    )
    _add_output(parser, "table", "json", "yaml", "name")


def _add_bulk(verbs: Any, connection: ArgumentParser) -> None:
    words = "Change many clusters at once, all or none, and print the change of each"
    parser = verbs.add_parser("change_clusters", help=words, parents=[connection])
    parser.set_defaults(run="bulk", needs_apps=True)
    add = parser.add_argument
    add("action", choices=bulk_actions())
    names = add("names", nargs="*", metavar="NAME")
    names.noun = "clusters"
    add(
        "--filter",
        metavar="TEXT",
        help="all clusters that match, such as 'region=east status=ready'",
    )
    for name, metavar, meaning in (
        ("set", "KEY=VALUE", "label to set"),
        ("add", "KEY[=VALUE][:EFFECT]", "taint to add"),
        ("remove", "KEY", "label key or taint to remove"),
    ):
        add(f"--{name}", action="append", default=[], metavar=metavar, help=meaning)
    add(
        "--dry-run",
        action="store_const",
        const="All",
        dest="query_dryRun",
        help="print the changes and change nothing",
    )


def _add_questions(verbs: Any, connection: ArgumentParser) -> None:
    why = verbs.add_parser(
        "why", help="Explain why a cluster is selected or not", parents=[connection]
    )
    why.set_defaults(run="why")
    placement = why.add_argument("placement", metavar="PLACEMENT")
    placement.noun = "placements"
    cluster = why.add_argument("cluster", metavar="CLUSTER")
    cluster.noun = "clusters"
    why.add_argument("--decision", metavar="ID", help="default: the latest one")
    _add_output(why, "table", "json", "yaml")
    replay = verbs.add_parser(
        "replay",
        help="Replay the decision of a live hub: whether the engine agrees, and what differs",
        parents=[connection],
    )
    replay.set_defaults(run="why", cluster="")
    placement = replay.add_argument("placement", metavar="PLACEMENT")
    placement.noun = "placements"
    replay.add_argument("--decision", metavar="ID", help="default: the latest one")
    _add_output(replay, "yaml", "json")
    wait = verbs.add_parser(
        "wait",
        help="Wait for conditions of a placement: status 5 when the time is over",
        parents=[connection],
    )
    wait.set_defaults(run="waiting")
    name = wait.add_argument(
        "name", metavar="NAME", help="NAME, or NAMESPACE/NAME of a ResourcePlacement"
    )
    name.noun = "placements"
    wait.add_argument(
        "--for",
        action="append",
        dest="conditions",
        metavar="CONDITION[=VALUE]",
        help="such as Scheduled, Available or deleted; values True (default), False, Unknown; repeatable "
        "(default: Scheduled and Available)",
    )
    wait.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="TIME",
        help="such as 30s, 10m or 1h (default 5m)",
    )


def _add_checks(verbs: Any, connection: ArgumentParser) -> None:
    checks = verbs.add_parser(
        "checks",
        help="Check policies and labels for what is wrong, without effect or risky: status 1 by --fail-on",
        parents=[connection],
    )
    checks.set_defaults(run="checks", do="checks")
    checks.add_argument(
        "-f",
        "--filename",
        action="extend",
        nargs="+",
        dest="files",
        default=[],
        metavar="FILE",
        help="files or folders instead of the hub (repeatable)",
    )
    checks.add_argument(
        "--fail-on",
        choices=["error", "warning", "info"],
        help="the least severity that fails",
    )
    _add_output(checks, "table", "json", "sarif")
    file = verbs.add_parser(
        "checks_file",
        help="Print or replace the .fleetui.yaml of the hub",
        parents=[connection],
    )
    file.set_defaults(run="checks", do="checks_file")
    file.add_argument("-f", "--filename", metavar="FILE", help="file that replaces it")


def _add_what_if(verbs: Any, connection: ArgumentParser) -> None:
    parser = verbs.add_parser(
        "what_if",
        help="Show what the loss of clusters does, of every cluster and domain or of the chosen ones",
        parents=[connection],
    )
    parser.set_defaults(run="what_if")
    add = parser.add_argument
    for name, metavar, words in (
        ("cluster", "NAME", "a lost cluster"),
        ("label", "KEY=VALUE", "a label of all lost clusters"),
    ):
        option = add(
            f"--{name}",
            action="append",
            default=[],
            metavar=metavar,
            help=f"{words} (repeatable)",
        )
        option.noun = "clusters" * (name == "cluster")
    add(
        "--keys",
        default="",
        metavar="KEY,…",
        help="topology keys (default: those in use)",
    )
    add(
        "--variant",
        action="append",
        choices=loss_variants(),
        help="default: all (repeatable)",
    )
    add(
        "--fail-on",
        action="append",
        type=condition,
        default=[],
        metavar="CONDITION",
        help='such as "unfulfilled>0 of region" (repeatable)',
    )
    _add_output(parser, "table", "json")


def _add_members(verbs: Any, *, needs_server: bool) -> None:
    """Add the commands that read a file of clusters or a kubeconfig, which is not that of a hub."""
    connection = connection_options()
    connection.set_defaults(run="members", needs_apps=True, needs_server=needs_server)
    [operation] = commands()[IMPORT]
    parser = verbs.add_parser(IMPORT, help=operation.help, parents=[connection])
    parser.set_defaults(do="import")
    add = parser.add_argument
    add("file", metavar="FILE", help="file with clusters, - for stdin")
    for name in ("context", "rename", "driver"):
        _add_field(parser, name, operation.query[name], where="query")
    for flag, name, value, words in (
        ("confirm", "confirm", FAILED_CHECK, "save connections whose check fails"),
        (
            "dry-run",
            "dryRun",
            "All",
            "check everything and show results; write nothing",
        ),
    ):
        add(
            f"--{flag}",
            action="store_const",
            const=value,
            dest=f"query_{name}",
            help=words,
        )
    join = verbs.add_parser(
        "join",
        help="Add a Kubernetes cluster to the fleet by its kubeconfig, after a check of the connection",
        parents=[connection],
    )
    join.set_defaults(do="join")
    add = join.add_argument
    add("name", metavar="NAME")
    source = join.add_mutually_exclusive_group()
    source.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig; - is stdin")
    source.add_argument(
        "--in-cluster",
        action="store_true",
        help="the cluster in which the console runs, with its account",
    )
    add("--context", default="", help="context of the kubeconfig, if it has several")
    for flag, words in (
        ("check", "check only; nothing is saved"),
        ("replace", "change a cluster that exists"),
        ("confirm", "save the connection although its check fails"),
        (
            "other-cluster",
            "the member has another cluster than before, or the cluster had another name",
        ),
    ):
        add(f"--{flag}", action="store_true", help=words)
    for flag, metavar, words in (
        ("label", "KEY=VALUE", "label of a new cluster"),
        (
            "taint",
            "KEY[=VALUE][:EFFECT]",
            "taint of a new cluster (default effect: NoSchedule)",
        ),
    ):
        add(f"--{flag}", action="append", default=[], metavar=metavar, help=words)
