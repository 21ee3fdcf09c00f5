"""`manage.py simulate` where people were misled: each test is one report of a user who tried it."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleetui.apimachinery.model import Semantics
from placements.manifests.placement import parse_placement
from placements.services.simulate.translate import placement_input, translate
from tests.services.simulate_runs import NINE, WEB, simulate, simulate_demo

ROOT = Path(__file__).parent.parent.parent
WEB_POLICY = {"placementType": "PickN", "numberOfClusters": 1}


@pytest.fixture(name="write")
def _write(tmp_path: Path) -> Any:
    """Write data into a file as JSON and return its path."""

    def write(name: str, data: object) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(data), encoding="utf-8")
        return path

    return write


def _placement(policy: dict[str, Any], **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "web"}
            ],
            "policy": policy,
        },
    }


def _member(name: str, heartbeat: str | None) -> dict[str, Any]:
    agent = {
        "type": "MemberAgent",
        "conditions": [{"type": "Joined", "status": "True"}],
    }
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {"identity": {"kind": "ServiceAccount", "name": "agent"}},
        "status": {
            "agentStatus": [
                {**agent, "lastReceivedHeartbeat": heartbeat} if heartbeat else agent
            ]
        },
    }


@pytest.mark.nightly
def test_advice_shows_how_to_repeat_a_change_of_the_policy(write: Any) -> None:
    bindings = write("b.json", [{"cluster": "quietheron", "state": "Bound"}])

    first = simulate_demo("--why", "amberotter").output
    later = simulate_demo("--why", "amberotter", "--bindings", bindings).output

    assert "--snapshot" not in first
    assert later.splitlines()[-1].endswith("add --snapshot and any new name.")


@pytest.mark.parametrize("semantics", ["ocm", "all"])
def test_options_that_only_another_semantics_reads_are_refused_there(
    write: Any, semantics: str
) -> None:
    policy_file = write(
        "p.json",
        _placement(WEB_POLICY, **{"fleetui.io/spread-options": '{"mode": "silly"}'}),
    )

    alone = simulate("--clusters", NINE, "--placement", policy_file)
    other = simulate(
        "--clusters", NINE, "--placement", policy_file, "--semantics", semantics
    )

    assert alone.status == 0
    assert other.status == 2
    assert (
        'p.json: metadata.annotations["fleetui.io/spread-options"].mode' in other.errors
    )


@pytest.mark.parametrize(
    ("semantics", "words"),
    [
        ("fleet", "not limited by the constraint, and often selected first"),
        ("kubernetes", "never selected"),
        ("ocm", "together a domain of their own"),
    ],
)
def test_what_a_missing_key_means_depends_on_the_semantics(
    write: Any, semantics: str, words: str
) -> None:
    clusters = write(
        "c.json", [{"name": "a", "labels": {"zone": "1"}}, {"name": "b", "labels": {}}]
    )
    spreads = [{"topologyKey": "zone"}]
    policy_file = write(
        "p.json", _placement({**WEB_POLICY, "topologySpreadConstraints": spreads})
    )

    run = simulate(
        "--clusters", clusters, "--placement", policy_file, "--semantics", semantics
    )

    assert f"1 candidate without zone (b): {words}." in run.output


def test_warnings_point_into_the_document_whatever_its_form(write: Any) -> None:
    spread = {"topologyKey": "rack"}
    fleet_form = write(
        "f.json", _placement({**WEB_POLICY, "topologySpreadConstraints": [spread]})
    )
    ocm_form = write(
        "o.json",
        {
            "apiVersion": "cluster.open-cluster-management.io/v1beta1",
            "kind": "Placement",
            "metadata": {"name": "web"},
            "spec": {
                "numberOfClusters": 1,
                "predicates": [
                    {
                        "requiredClusterSelector": {
                            "labelSelector": {"matchLabels": {"disk": "x"}}
                        }
                    }
                ],
                "spreadPolicy": {
                    "spreadConstraints": [{"topologyKey": "region"}, spread]
                },
            },
        },
    )

    first = simulate("--clusters", NINE, "--placement", fleet_form).output
    second = simulate("--clusters", NINE, "--placement", ocm_form).output

    assert (
        "warning: spec.policy.topologySpreadConstraints[0].topologyKey: No cluster has"
        in first
    )
    assert (
        "warning: spec.spreadPolicy.spreadConstraints[1].topologyKey: No cluster has"
        in second
    )
    assert (
        "warning: spec.predicates[0].requiredClusterSelector.labelSelector: No cluster has"
        in second
    )


def test_a_soft_term_of_ocm_has_no_limit_to_carry_over() -> None:
    terms = [{"topologyKey": "zone", "maxSkew": 5}]
    document = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "web"},
        "spec": {"numberOfClusters": 1, "spreadPolicy": {"spreadConstraints": terms}},
    }

    (carried,) = translate(
        placement_input(parse_placement(document)), Semantics.FLEET
    ).policy.topology_spread_constraints

    assert (carried.max_skew, carried.when_unsatisfiable) == (1, "ScheduleAnyway")


def test_every_option_that_other_semantics_lack_is_reported() -> None:
    memory = {"scoreCoordinate": {"builtIn": "ResourceAllocatableMemory"}, "weight": 2}
    document = {
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": {
            "name": "web",
            "annotations": {"fleetui.io/spread-options": '{"unsetPolicy": "exclude"}'},
        },
        "spec": {
            "numberOfClusters": 1,
            "prioritizerPolicy": {"configurations": [memory]},
        },
    }

    warnings = translate(
        placement_input(parse_placement(document)), Semantics.FLEET
    ).warnings

    words = "unsetPolicy, Steady, Balance and ResourceAllocatableMemory; ignored"
    assert [warning.message for warning in warnings if warning.path == "spec"] == [
        f"fleet semantics have no equivalent of {words}"
    ]


def test_weights_of_a_key_that_nothing_spreads_over_are_reported() -> None:
    options = {"domainWeights": {"zon": {"a": 2}, "zone": {"a": 2}}}
    soft = [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    annotations = {
        "fleetui.io/semantics": "ocm",
        "fleetui.io/spread-options": json.dumps(options),
    }
    document = _placement(
        {**WEB_POLICY, "topologySpreadConstraints": soft}, **annotations
    )

    (warning,) = placement_input(parse_placement(document)).warnings

    assert (
        warning.path
        == 'metadata.annotations["fleetui.io/spread-options"].domainWeights'
    )
    assert (
        warning.message == 'weights without effect: no constraint has topologyKey "zon"'
    )


def test_without_any_heartbeat_none_is_called_stale(write: Any) -> None:
    run = simulate(
        "--clusters", write("c.json", _member("a", None)), "--placement", WEB
    )

    assert "1970" not in run.output


def test_a_moment_before_the_heartbeats_is_reported(write: Any) -> None:
    clusters = write("c.json", _member("a", "2026-01-01T12:00:00Z"))

    run = simulate(
        "--clusters", clusters, "--placement", WEB, "--now", "2025-01-01T00:00:00Z"
    )

    assert (
        "1 of 1 heartbeats are after 2025-01-01T00:00:00+00:00: they count as recent"
        in run.output
    )


def test_csv_has_rows_for_clusters_that_the_fleet_does_not_have(write: Any) -> None:
    fixed = write(
        "p.json",
        _placement(
            {"placementType": "PickFixed", "clusterNames": ["palemoth", "nope"]}
        ),
    )
    bindings = write(
        "b.json", [{"cluster": name, "state": "Bound"} for name in ("palemoth", "gone")]
    )

    run = simulate(
        "--clusters", NINE, "--placement", fixed, "--bindings", bindings, "-o", "csv"
    )

    rows = {row["cluster"]: row for row in csv.DictReader(io.StringIO(run.output))}
    assert [
        (rows[name]["outcome"], rows[name]["stays"])
        for name in ("palemoth", "gone", "nope")
    ] == [
        ("kept", "yes"),
        ("unscheduled", "no"),
        ("not found", "no"),
    ]


def test_bare_items_of_a_list_are_member_clusters_too(write: Any) -> None:
    clusters = write("c.json", [_member(name, "2026-01-01T12:00:00Z") for name in "ab"])
    bad = write(
        "bad.json",
        [_member("a", "2026-01-01T12:00:00Z"), {**_member("b", None), "spec": {}}],
    )

    assert "2 clusters" in simulate("--clusters", clusters, "--placement", WEB).output
    assert (
        "bad.json: spec.identity"
        in simulate("--clusters", bad, "--placement", WEB).errors
    )


def test_a_fault_without_a_path_starts_with_its_line(write: Any) -> None:
    run = simulate("--clusters", write("c.json", "NAME JOINED AGE"), "--placement", WEB)

    assert "c.json: (line 1): " in run.errors


def test_a_fault_at_an_endless_key_is_cut(write: Any) -> None:
    run = simulate(
        "--clusters",
        write("c.json", [{"name": "a", "x" * 5_000: 1}]),
        "--placement",
        WEB,
    )

    assert run.status == 2
    assert len(run.errors) < 1_000


def test_a_comparison_distinguishes_kept_from_picked_and_counts_who_goes(
    write: Any,
) -> None:
    names = (
        "amberotter",
        "bravelion",
        "nimblefox",
        "oldbadger",
        "palemoth",
        "smartfish",
    )
    bindings = write("b.json", [{"cluster": name, "state": "Bound"} for name in names])

    lines = simulate_demo(
        "--bindings", bindings, "--semantics", "all"
    ).output.splitlines()

    assert any("(kept)" in line for line in lines)
    assert lines[-2].split() == [
        "1",
        "unscheduled",
        "1",
        "unscheduled",
        "2",
        "unscheduled",
        "1",
        "unscheduled",
    ]


@pytest.mark.nightly
def test_a_closed_output_is_reported_and_not_taken_for_an_answer() -> None:
    command = (
        f"{sys.executable} manage.py simulate --clusters {NINE} --placement {WEB} >&-"
    )

    run = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "CommandError: cannot write: standard output is closed\n"


def test_a_decision_on_files_loads_no_app() -> None:
    """Loading the apps takes longer than the decision; `--diff` needs them and has them."""
    examples = ROOT / "docs" / "examples"
    words = [
        "simulate",
        "--placement",
        str(examples / "web.yaml"),
        "--clusters",
        str(examples / "nine.yaml"),
    ]
    program = (
        "from django.apps import apps\nfrom placements.client.main import main\n"
        f"main(['fleetui', *{words}])\nprint('ready:', apps.ready)"
    )
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert run.stdout.rstrip().endswith("ready: False"), run.stdout


def test_constraints_that_share_a_key_do_not_hide_each_other(write: Any) -> None:
    claim = {"topologyKey": "region", "topologyKeyType": "Claim"}
    policy = {
        **WEB_POLICY,
        "topologySpreadConstraints": [{"topologyKey": "region"}, claim],
    }
    policy_file = write("p.json", _placement(policy, **{"fleetui.io/semantics": "ocm"}))

    [first] = json.loads(
        simulate("--clusters", NINE, "--placement", policy_file, "-o", "json").output
    )["rounds"]

    assert set(first["groups"]["region[0]"]) == {"east", "north", "south", "west"}
    assert set(first["groups"]["region[1]"]) == {
        f"{region}/(unset)" for region in first["groups"]["region[0]"]
    }
    assert first["measures"] == {"region[0]": "gap", "region[1]": "gap"}


def test_affinity_rows_are_carried_over_in_the_place_of_preferred_terms() -> None:
    term = {
        "weight": 7,
        "preference": {"labelSelector": {"matchLabels": {"env": "prod"}}},
    }
    preferred = {
        "clusterAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    row = {"weight": 20, "operator": "In", "values": ["east"]}
    options = {"affinityTerms": [{"topologyKey": "region", "topologyWeights": [row]}]}
    notes = {
        "fleetui.io/semantics": "ocm",
        "fleetui.io/spread-options": json.dumps(options),
    }
    document = _placement({**WEB_POLICY, "affinity": preferred}, **notes)

    carried = translate(placement_input(parse_placement(document)), Semantics.FLEET)

    assert [
        preferred_term.weight for preferred_term in carried.policy.preferred_terms
    ] == [20]
    assert any("replaced by" in warning.message for warning in carried.warnings)
