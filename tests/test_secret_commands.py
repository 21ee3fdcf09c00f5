"""No command prints a planted value of a Secret, except for `export`, which writes the access log."""

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, get_commands

from fleetui.access.models import AccessEvent
from fleetui.apimachinery.yaml import dump_yaml
from placements.client.main import verbs_of
from placements.client.operations import nouns
from tests.commands import PARSER, call_command
from tests.database import rolled_back
from tests.rows import person
from tests.web.planted import (
    cluster_envelope,
    drafted,
    envelope,
    found_in,
    plant_live_hub,
    secret,
)
from tests.web.test_planted_secrets import ROLES, page_world

pytestmark = pytest.mark.django_db
EXAMPLES: dict[str, tuple[tuple[str, ...], ...]] = {
    "apply": (
        ("-f", "{secrets}", "--dry-run"),
        ("-f", "{wrong}"),
        ("-f", "{broken}"),
        ("-f", "{secrets}"),
    ),
    "change_clusters": (("cordon", "bravelion", "--dry-run"),),
    "completion": (("bash",),),
    "credentials": (("check",),),
    "diff": (("-f", "{secrets}"), ("-f", "{wrong}"), ("-f", "{broken}")),
    "checks": (
        (),
        ("-f", "{secrets}"),
        ("-f", "{wrong}"),
        ("-f", "{broken}"),
        ("-o", "json"),
        ("-o", "sarif"),
    ),
    "checks_file": ((), ("-f", "{secrets}"), ("-f", "{wrong}"), ("-f", "{broken}")),
    "cancel-drain": (("bravelion",),),
    "cordon": (("bravelion",),),
    "delete": (("placements", "web"),),
    "describe": (("placements", "web"), ("clusters", "bravelion")),
    "drain": (("bravelion", "--dry-run"),),
    "end_sessions": (("owner",),),
    "evict": (("web", "bravelion"),),
    "export": (
        *((kind,) for kind in ("budgets", "clusters", "placements", "runs")),
        ("strategies",),
        ("placements", "-o", "json"),
    ),
    "fault": (("bravelion", "silent"),),
    "get": (
        *((noun,) for noun in nouns() if "/" not in noun),
        ("placements", "web", "-o", "yaml"),
        ("placements", "-o", "json"),
    ),
    "hubs": (
        *((), ("rome",), ("-o", "json"), ("nowhere", "--disconnect")),
        *(("rome", "--pause"), ("rome", "--resume"), ("rome", "--reproject")),
    ),
    "import_clusters": (("{secrets}",),),
    "join": (("bravelion",),),
    "leave": (("bravelion",),),
    "load_demo": (("nine",),),
    "prepare": ((),),
    "prune": (("--dry-run",),),
    "reschedule": (("web", "--dry-run"), ("web", "--moves", "fewest", "--dry-run")),
    "replay": (("web",),),
    "removals": (("confirm", "bravelion", "web"), ("keep", "bravelion", "web")),
    "rollout": (("status", "web"), ("status", "bundle")),
    "simulate": (
        ("--clusters", "{secrets}", "--placement", "{secrets}"),
        ("--diff", "{secrets}", "{wrong}", "-o", "json"),
    ),
    "staged": (("status", "missing"),),
    "uncordon": (("bravelion",),),
    "why": (("web", "bravelion"),),
    "verify_decisions": ((),),
    "what_if": ((), ("--cluster", "bravelion")),
    "wait": (("web", "--for", "scheduled", "--timeout", "1s"),),
}
"""What each command is called with; a command that refuses prints what it refuses."""
WITHOUT_DATABASE = {
    "backup": "waits for the end of the transaction; `test_planted_secrets.py` looks for values in its file",
    "connect_hub": "connects a server",
    "record_hub": "connects a server; `tests/hubs/test_recording.py` looks for values in its file",
    "restore": "needs an empty database",
    "up": "starts the processes, whose logs are those of the workers",
    "watch_hubs": "is a process that reads live hubs",
}


NOT_UNDERSTOOD = (
    "the following arguments are required",
    "unrecognized arguments",
    "invalid choice",
)
"""What a command prints that has been called in a wrong way, so that it did nothing."""


def commands_of_the_product() -> set[str]:
    own = ("fleetui", "clusters", "placements")
    return {
        name
        for name, app in get_commands().items()
        if str(app).split(".", maxsplit=1)[0] in own
    } | verbs_of(PARSER).keys()


def test_every_command_has_an_example_or_a_reason() -> None:
    assert EXAMPLES.keys() | WITHOUT_DATABASE.keys() == commands_of_the_product()
    assert EXAMPLES.keys() & WITHOUT_DATABASE.keys() == set()


def written_by(name: str, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Return the status of a command and all that it writes to a terminal."""
    out, status = StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            call_command(name, *arguments, stdout=out, stderr=out)
        except CommandError as error:
            status = error.returncode
            out.write(str(error))
        except SystemExit as error:
            status = int(error.code or 0)
    return status, out.getvalue()


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Fill the database with values, and write files with values: good, invalid and unreadable ones."""
    page_world(person("owner", *ROLES))
    plant_live_hub("rome")
    wrong = secret("wrong")
    wrong["metadata"]["namespace"] = "No namespace"
    wrong["data"] = ["planted-as-a-list"]
    files = {
        "secrets": "---\n".join(
            map(dump_yaml, [secret("printed"), envelope("printed")])
        ),
        "wrong": "---\n".join(map(dump_yaml, [wrong, cluster_envelope("wrong")])),
        "broken": drafted({})[-1],
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: str(tmp_path / f"{name}.yaml") for name in files} | {
        "folder": str(tmp_path)
    }


def test_no_command_prints_a_value(places: dict[str, str]) -> None:
    found, lengths = {}, {}
    for name, examples in EXAMPLES.items():
        for example in examples:
            arguments = tuple(one.format(**places) for one in example)
            with rolled_back():
                status, text = written_by(name, arguments)
            lengths[name, example] = len(text)
            if any(words in text for words in NOT_UNDERSTOOD):
                found[name, example] = text[-200:]
            if found_in(text):
                found[name, example] = f"{status}: {text[:3000]}"

    assert found == {}
    assert len([length for length in lengths.values() if length]) > 40


def test_export_prints_values_and_writes_that_down(places: dict[str, str]) -> None:  # noqa: ARG001 -- its rows
    for kind in ("resources", "overrides"):
        before = AccessEvent.objects.filter(verb="secret values read").count()

        assert found_in(written_by("export", (kind,))[1])
        assert AccessEvent.objects.filter(verb="secret values read").count() > before
