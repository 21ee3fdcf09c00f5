"""The arguments of all commands: those of actions and nouns are made of the operations of the API."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleetui import LOCAL_HUB_NAME
from fleetui.apimachinery.words import UNIT_SECONDS
from fleetui.remote import SERVER, TOKEN
from placements.client.operations import (
    ListedNoun,
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
_TYPES: dict[Any, dict[str, type]] = {
    "integer": {"type": int},
    "number": {"type": float},
}
_ACTIONS: dict[Any, dict[str, str]] = {
    "boolean": {"action": "store_const", "const": "true"},
    "array": {"action": "append"},
}
"""What argparse has for the types of JSON."""
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
    total = sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)
    if not 0 < total <= 7 * UNIT_SECONDS["d"]:
        raise ArgumentTypeError("write more than 0s, and at most 168h")
    return total


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument as argparse adds it; `noun` is what its value names, for completion."""

    flags: tuple[str, ...]
    options: Mapping[str, Any]
    noun: str = ""

    def add_to(self, parser: Any) -> None:
        parser.add_argument(*self.flags, **self.options).noun = self.noun


@dataclass(frozen=True, slots=True)
class CommandForm:
    """The arguments of a command; of the `sources` one is given. `run` is the module that runs it.

    `formats` are those of `--output`, the default first.
    """

    name: str
    help: str
    run: str
    arguments: Sequence[Argument]
    formats: tuple[str, ...] = ()
    sources: tuple[Argument, ...] = ()
    aliases: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _argument(*flags: str, noun: str = "", **options: Any) -> Argument:
    return Argument(flags, options, noun)


def _flag(*flags: str, value: str = "", **options: Any) -> Argument:
    """Return an option without a value; it stands for `value`, else for true."""
    if value:
        return Argument(flags, {"action": "store_const", "const": value, **options})
    return Argument(flags, {"action": "store_true", **options})


def _repeatable(*flags: str, noun: str = "", **options: Any) -> Argument:
    return Argument(flags, {"action": "append", "default": [], **options}, noun)


def _field(
    name: str,
    field: Mapping[str, Any],
    *,
    where: str,
    is_positional: bool = False,
    is_required: bool = True,
) -> Argument:
    is_list = field.get("type") == "array"
    one = field["items"] if is_list else field
    options: dict[str, Any] = {"help": field.get("description", "").replace("%", "%%")}
    if 0 < len(one.get("enum", ())) <= _MOST_CHOICES:
        options["choices"] = [each for each in one["enum"] if each]
    options |= _TYPES.get(one.get("type"), {})
    if name.endswith("Seconds"):
        options["type"] = lambda text: round(seconds(text))
    flag = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name.removesuffix("Seconds")).lower()
    if is_positional:
        if is_list:
            options["nargs"] = "+"
        elif not is_required:
            options["nargs"] = "?"
        return _argument(f"{where}_{name}", metavar=flag.upper(), **options)
    options |= _ACTIONS.get(field.get("type"), {})
    if "choices" not in options and options.get("action") != "store_const":
        options["metavar"] = flag.upper()
    return _argument(f"--{flag}", dest=f"{where}_{name}", **options)


_CONNECTION = (
    _argument(
        "--server",
        metavar="URL",
        help=f"address of a console (default: {SERVER}, else this machine)",
    ),
    _argument(
        "--token",
        help=f"visible to all users of this machine: better --token-file, or {TOKEN}",
    ),
    _argument("--token-file", metavar="FILE", help="file with the token"),
    _argument(
        "--ca-file",
        metavar="FILE",
        help="certificates to trust (default: those of the system)",
    ),
    _flag("--insecure-skip-tls-verify", help="accept any certificate"),
    _flag("--allow-http", help="send the token unencrypted to another machine"),
    _argument(
        "--request-timeout",
        type=seconds,
        metavar="TIME",
        help="of one request (default 60s)",
    ),
)
_OF_KUBECONFIG = (
    _argument(
        "--kubeconfig",
        metavar="FILE",
        dest="hub_kubeconfig",
        help="default: that of kubectl",
    ),
    _argument(
        "--context",
        metavar="NAME",
        dest="hub_context",
        help="default: the current one",
    ),
)
_NOUN_VERBS = {
    "get": "List objects, or show those with the names",
    "describe": "Show an object with all that belongs to it",
    "delete": "Delete objects",
    "export": "Print objects as manifests, as they were applied",
}
_MANIFESTS = (
    _repeatable(
        "-f",
        "--filename",
        metavar="FILE",
        help="file or folder with manifests, - for stdin (repeatable)",
    ),
    _argument(
        "-k", "--kustomize", metavar="FOLDER", help="folder with a kustomization"
    ),
    _flag("-R", "--recursive", help="folders with those below"),
    _flag(
        "--strict",
        value="true",
        dest="query_strict",
        help="refuse policies and clusters of other systems",
    ),
)
_PLACEMENT = _argument("placement", metavar="PLACEMENT", noun="placements")
_DECISION = _argument("--decision", metavar="ID", help="default: the latest one")
[_IMPORT] = commands()[IMPORT]
_COMMANDS = (
    CommandForm(
        "apply",
        "Apply manifests: up to 500 documents all or none, more in batches",
        "manifests",
        (
            *_MANIFESTS,
            _argument(
                "--confirm",
                dest="query_confirm",
                choices=[CONFIRMATION],
                help="continue even if a placement would be removed from all clusters",
            ),
            _flag(
                "--dry-run",
                value="All",
                dest="query_dryRun",
                help="validate everything and show results and decisions; write nothing",
            ),
            _flag(
                "--prune",
                help="delete what has the labels of -l and is not in the files; no clusters",
            ),
            _argument(
                "-l",
                "--selector",
                metavar="KEY=VALUE,…",
                help="labels of what --prune deletes",
            ),
        ),
        ("table", "json", "yaml", "name"),
        defaults={"do": "apply"},
    ),
    CommandForm(
        "diff",
        "Show what applying manifests would change: status 1 if anything",
        "manifests",
        _MANIFESTS,
        defaults={"do": "diff"},
    ),
    CommandForm(
        "why",
        "Explain why a cluster is selected or not",
        "why",
        (
            _PLACEMENT,
            _argument("cluster", metavar="CLUSTER", noun="clusters"),
            _DECISION,
        ),
        ("table", "json", "yaml"),
    ),
    CommandForm(
        "replay",
        "Replay the decision of a live hub: whether the engine agrees, and what differs",
        "why",
        (_PLACEMENT, _DECISION),
        ("yaml", "json"),
        defaults={"cluster": ""},
    ),
    CommandForm(
        "wait",
        "Wait for conditions of a placement: status 5 when the time is over",
        "waiting",
        (
            _argument(
                "name",
                metavar="NAME",
                help="NAME, or NAMESPACE/NAME of a ResourcePlacement",
                noun="placements",
            ),
            _argument(
                "--for",
                action="append",
                dest="conditions",
                metavar="CONDITION[=VALUE]",
                help="such as Scheduled, Available or deleted; values True (default), False, Unknown; repeatable "
                "(default: Scheduled and Available)",
            ),
            _argument(
                "--timeout",
                type=seconds,
                default=300.0,
                metavar="TIME",
                help="such as 30s, 10m or 1h (default 5m)",
            ),
        ),
    ),
    CommandForm(
        "checks",
        "Check policies and labels for what is wrong, without effect or risky: status 1 by --fail-on",
        "checks",
        (
            _argument(
                "-f",
                "--filename",
                action="extend",
                nargs="+",
                dest="files",
                default=[],
                metavar="FILE",
                help="files or folders instead of the hub (repeatable)",
            ),
            _argument(
                "--fail-on",
                choices=["error", "warning", "info"],
                help="the least severity that fails",
            ),
        ),
        ("table", "json", "sarif"),
        defaults={"do": "checks"},
    ),
    CommandForm(
        "checks_file",
        "Print or replace the .fleetui.yaml of the hub",
        "checks",
        (_argument("-f", "--filename", metavar="FILE", help="file that replaces it"),),
        defaults={"do": "checks_file"},
    ),
    CommandForm(
        "what_if",
        "Show what the loss of clusters does, of every cluster and domain or of the chosen ones",
        "what_if",
        (
            _repeatable(
                "--cluster",
                metavar="NAME",
                help="a lost cluster (repeatable)",
                noun="clusters",
            ),
            _repeatable(
                "--label",
                metavar="KEY=VALUE",
                help="a label of all lost clusters (repeatable)",
            ),
            _argument(
                "--keys",
                default="",
                metavar="KEY,…",
                help="topology keys (default: those in use)",
            ),
            _argument(
                "--variant",
                action="append",
                choices=loss_variants(),
                help="default: all (repeatable)",
            ),
            _repeatable(
                "--fail-on",
                type=condition,
                metavar="CONDITION",
                help='such as "unfulfilled>0 of region" (repeatable)',
            ),
        ),
        ("table", "json"),
    ),
    # These read a file of clusters or a kubeconfig, which is not that of a hub.
    CommandForm(
        IMPORT,
        _IMPORT.help,
        "members",
        (
            _argument("file", metavar="FILE", help="file with clusters, - for stdin"),
            *(
                _field(name, _IMPORT.query[name], where="query")
                for name in ("context", "rename", "driver")
            ),
            _flag(
                "--confirm",
                value=FAILED_CHECK,
                dest="query_confirm",
                help="save connections whose check fails",
            ),
            _flag(
                "--dry-run",
                value="All",
                dest="query_dryRun",
                help="check everything and show results; write nothing",
            ),
        ),
        defaults={"do": "import"},
    ),
    CommandForm(
        "join",
        "Add a Kubernetes cluster to the fleet by its kubeconfig, after a check of the connection",
        "members",
        (
            _argument("name", metavar="NAME"),
            _argument(
                "--context",
                default="",
                help="context of the kubeconfig, if it has several",
            ),
            _flag("--check", help="check only; nothing is saved"),
            _flag("--replace", help="change a cluster that exists"),
            _flag("--confirm", help="save the connection although its check fails"),
            _flag(
                "--other-cluster",
                help="the member has another cluster than before, or the cluster had another name",
            ),
            _repeatable("--label", metavar="KEY=VALUE", help="label of a new cluster"),
            _repeatable(
                "--taint",
                metavar="KEY[=VALUE][:EFFECT]",
                help="taint of a new cluster (default effect: NoSchedule)",
            ),
        ),
        sources=(
            _argument("--kubeconfig", metavar="FILE", help="kubeconfig; - is stdin"),
            _flag(
                "--in-cluster",
                help="the cluster in which the console runs, with its account",
            ),
        ),
        defaults={"do": "join"},
    ),
    CommandForm(
        "change_clusters",
        "Change many clusters at once, all or none, and print the change of each",
        "bulk",
        (
            _argument("action", choices=bulk_actions()),
            _argument("names", nargs="*", metavar="NAME", noun="clusters"),
            _argument(
                "--filter",
                metavar="TEXT",
                help="all clusters that match, such as 'region=east status=ready'",
            ),
            _repeatable("--set", metavar="KEY=VALUE", help="label to set"),
            _repeatable("--add", metavar="KEY[=VALUE][:EFFECT]", help="taint to add"),
            _repeatable("--remove", metavar="KEY", help="label key or taint to remove"),
            _flag(
                "--dry-run",
                value="All",
                dest="query_dryRun",
                help="print the changes and change nothing",
            ),
        ),
        defaults={"needs_apps": True},
    ),
)
_OF_GROUPS = {
    "rollout": CommandForm(
        "status",
        "Show the latest rollout",
        "actions",
        (_argument("name", metavar="NAME"),),
        ("yaml", "json"),
        defaults={"do": "rollout status"},
    ),
    "staged": CommandForm(
        "start",
        "Create and start a run",
        "actions",
        (
            _argument("run_name", metavar="RUN", help="name of the run"),
            _argument("placement", metavar="PLACEMENT", help="NAME, or NAMESPACE/NAME"),
            _argument("strategy", metavar="STRATEGY", help="staged update strategy"),
            _argument(
                "--snapshot", metavar="NUMBER", help="older resources, such as 4, or r4"
            ),
            _flag("--prepare", help="create the run without starting it"),
        ),
        defaults={"do": "staged start"},
    ),
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
    connection, members = connection_options(), connection_options()
    members.set_defaults(needs_apps=True, needs_server=has_kubeconfig)
    if has_kubeconfig:
        _add_group(connection, "hub without a console", _OF_KUBECONFIG)
    for verb, words in _NOUN_VERBS.items():
        below: Any = verbs.add_parser(verb, help=words)
        below = below.add_subparsers(dest="noun", required=True, metavar="NOUN")
        for noun in nouns().values():
            if verb in noun.verbs:
                _add_command(below, _form_of_noun(verb, noun), connection)
    parents = {"members": members}
    for form in _COMMANDS:
        _add_command(verbs, form, parents.get(form.run, connection))
    groups = {
        name: verbs.add_parser(name, help=words).add_subparsers(
            dest="action", required=True, metavar="ACTION"
        )
        for name, words in _GROUPS.items()
    }
    for words, operations in commands().items():
        group_name, _, name = words.rpartition(" ")
        if words != IMPORT:
            form = _form_of_action(name, operations)
            _add_command(groups.get(group_name, verbs), form, connection)
    for name, form in _OF_GROUPS.items():
        _add_command(groups[name], form, connection)
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
    _add_group(parent, "console over REST", _CONNECTION)
    return parent


def _add_group(
    parser: ArgumentParser, title: str, arguments: Sequence[Argument]
) -> None:
    group = parser.add_argument_group(title)
    for argument in arguments:
        argument.add_to(group)


def _add_command(group: Any, form: CommandForm, connection: ArgumentParser) -> None:
    parser = group.add_parser(
        form.name, aliases=form.aliases, help=form.help, parents=[connection]
    )
    parser.set_defaults(run=form.run, **form.defaults)
    if form.sources:
        source = parser.add_mutually_exclusive_group()
        for argument in form.sources:
            argument.add_to(source)
    for argument in form.arguments:
        argument.add_to(parser)
    if form.formats:
        parser.add_argument(
            "-o",
            "--output",
            choices=form.formats,
            default=form.formats[0],
            help=f"default: {form.formats[0]}",
        )


def _form_of_noun(verb: str, noun: ListedNoun) -> CommandForm:
    many = "*" if verb in ("get", "export") else "+"
    arguments = [_argument("names", nargs=many, metavar="NAME", noun=noun.name)]
    formats: tuple[str, ...] = ()
    if verb == "get":
        formats = FORMATS
        arguments += [
            _field(name, field, where="query")
            for name, field in noun.query.items()
            if name not in ("limit", "hub")
        ]
    elif verb == "export":
        formats = ("yaml", "json")
        arguments.append(
            _flag(
                "--no-status",
                help="omit what the hub sets: the status and parts of the metadata",
            )
        )
    return CommandForm(
        noun.name,
        noun.help,
        "objects",
        arguments,
        formats,
        aliases=noun.aliases,
        defaults={"do": verb, "of": noun},
    )


def _form_of_action(name: str, operations: list[Operation]) -> CommandForm:
    """Return the command of an action; with an operation that reads what it would do it has `--dry-run`."""
    operation = next((one for one in operations if one.method != "GET"), operations[0])
    noun = operation.path.partition("/")[0]
    is_only = len(operation.fields) == 1
    arguments = [
        _argument("name", metavar="NAME", noun=noun),
        *(
            _field(
                key,
                field,
                where="field",
                is_positional=key in operation.required or is_only,
                is_required=key in operation.required,
            )
            for key, field in sorted(
                operation.fields.items(),
                key=lambda item: item[0] not in operation.required,
            )
        ),
        *(_field(key, field, where="query") for key, field in operation.query.items()),
    ]
    if len(operations) > 1:
        arguments.append(
            _flag("--dry-run", help="show what it would do; change nothing")
        )
    return CommandForm(
        name,
        operation.help,
        "actions",
        arguments,
        FORMATS,
        defaults={"operations": operations},
    )
