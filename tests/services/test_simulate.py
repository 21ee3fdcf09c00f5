"""`manage.py simulate` as people use it: every option, every output, every exit status."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.services.simulate_runs import NINE, WEB, simulate, simulate_demo

ROOT = Path(__file__).parent.parent.parent
PICKS = ["quietheron", "smartfish", "nimblefox", "palemoth", "oldbadger"]
AGENT = {
    "type": "MemberAgent",
    "lastReceivedHeartbeat": "2026-01-01T12:00:00Z",
    "conditions": [
        {"type": "Joined", "status": "True"},
        {"type": "Healthy", "status": "True"},
    ],
}


def member(
    name: str, heartbeat: str | None = "2026-01-01T12:00:00Z", **labels: str
) -> dict[str, Any]:
    """Write a MemberCluster; without a heartbeat it has no status."""
    status = (
        {"status": {"agentStatus": [{**AGENT, "lastReceivedHeartbeat": heartbeat}]}}
        if heartbeat
        else {}
    )
    identity = {"kind": "ServiceAccount", "name": "agent", "namespace": "fleet-system"}
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
        "kind": "MemberCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"identity": identity},
        **status,
    }


def placement(name: str = "web", **policy: Any) -> dict[str, Any]:
    """Write a placement with this policy."""
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": name},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "Namespace", "name": "web"}
            ],
            **({"policy": policy} if policy else {}),
        },
    }


def hub_binding(
    cluster: str, snapshot: str, state: str = "Bound", of: str = "web"
) -> dict[str, Any]:
    """Write a ClusterResourceBinding."""
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourceBinding",
        "metadata": {
            "name": f"{of}-{cluster}",
            "labels": {"kubernetes-fleet.io/parent-CRP": of},
        },
        "spec": {
            "state": state,
            "targetCluster": cluster,
            "schedulingPolicySnapshotName": snapshot,
            "clusterDecision": {
                "clusterScore": {"affinityScore": 20, "priorityScore": -1}
            },
        },
    }


@pytest.fixture(name="write")
def _write(tmp_path: Path) -> Any:
    """Write documents into a file and return its path."""

    def write(name: str, *documents: Any) -> Path:
        path = tmp_path / name
        path.write_text(
            yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8"
        )
        return path

    return write


class TestOutputs:
    """What is printed."""

    def test_json_has_the_whole_record(self) -> None:
        run = simulate_demo("-o", "json")

        document = json.loads(run.output)
        assert run.status == 0
        assert list(document)[:6] == [
            "apiVersion",
            "kind",
            "id",
            "semantics",
            "fulfilled",
            "picked",
        ]
        assert (document["apiVersion"], document["kind"]) == (
            "fleetui.io/v1",
            "Decision",
        )
        assert document["picked"] == PICKS
        assert document["scores"]["quietheron"] == {
            "topologySpreadScore": -2,
            "affinityScore": 20,
        }
        assert document["condition"]["status"] == "True"
        assert [one["winner"] for one in document["rounds"]] == PICKS
        assert len(document["outcomes"]) == 9
        assert all(
            sum(reason["deciding"] for reason in outcome["reasons"]) == 1
            for outcome in document["outcomes"]
        )

    def test_a_round_shows_groups_skew_and_what_decided(self) -> None:
        second = json.loads(simulate_demo("-o", "json").output)["rounds"][1]

        assert second == {
            "round": 2,
            "groups": {
                "region": {"east": 0, "north": 0, "south": 0, "west": 1},
                "env": {"canary": 0, "prod": 1},
            },
            "measures": {"region": "skew", "env": "skew"},
            "skewBefore": {"region": 1, "env": 1},
            "skewAfter": {"region": 1, "env": 0},
            "winner": "smartfish",
            "runnerUp": "oldbadger",
            "decidedBy": "name",
        }

    def test_candidates_come_with_step_only(self) -> None:
        rounds = json.loads(simulate_demo("-o", "json", "--step", 5).output)["rounds"]

        assert ["candidates" in one for one in rounds] == [
            False,
            False,
            False,
            False,
            True,
        ]
        last = rounds[4]["candidates"][2]
        assert (last["cluster"], last["rank"], last["topologySpreadScore"]) == (
            "jumpingcat",
            3,
            -1001,
        )
        assert (last["decidedBy"], last["preferred"]) == ("topology", [20, 0])
        assert [constraint["score"] for constraint in last["constraints"]] == [
            -1,
            -1000,
        ]

    @pytest.mark.nightly
    def test_yaml_holds_what_json_holds(self) -> None:
        options = ("--step", 2, "--why", "bravelion")

        from_yaml = yaml.safe_load(simulate_demo("-o", "yaml", *options).output)

        assert from_yaml == json.loads(simulate_demo("-o", "json", *options).output)

    def test_csv_has_one_row_per_cluster(self) -> None:
        rows = list(csv.DictReader(io.StringIO(simulate_demo("-o", "csv").output)))

        assert [row["cluster"] for row in rows] == sorted(
            row["cluster"] for row in rows
        )
        assert len(rows) == 9
        smartfish = next(row for row in rows if row["cluster"] == "smartfish")
        assert (
            smartfish["outcome"],
            smartfish["round"],
            smartfish["affinityScore"],
        ) == (
            "picked",
            "2",
            "-10",
        )

    def test_the_table_has_a_sentence_a_round_and_the_ranked_candidates(self) -> None:
        output = simulate_demo().output

        assert "STEP 2 of 5: smartfish before oldbadger on name" in output
        assert (
            "region (max skew 1, hard): east: 0→1, north: 0, south: 0, west: 1; skew 1"
            in output
        )
        assert "     2  oldbadger       0   +1         1       -10  name" in output

    def test_the_table_of_one_step_lists_all_its_candidates(self) -> None:
        output = simulate_demo("--step", 3).output

        assert "STEP 3 of 5: nimblefox before palemoth on affinity" in output
        assert "STEP 2" not in output
        assert output.count("spread limit") == 4

    def test_why_shows_what_would_help(self) -> None:
        output = simulate_demo("--why", "bravelion").output

        assert (
            "✓ numberOfClusters 7 (now 5)  [then selected: flyingpenguin, bravelion]"
            in output
        )
        assert "✗ region maxSkew 2 to 5 (now 1)" in output

    def test_the_same_input_prints_the_same_bytes(self) -> None:
        assert simulate_demo("-o", "json") == simulate_demo("-o", "json")


# The type of this list is stated: mypy takes 7 s to infer it.
DOCUMENTS: list[Any] = [
    (member("a"), member("b")),
    ({"apiVersion": "v1", "kind": "List", "items": [member("a"), member("b")]},),
    ({"kind": "MemberClusterList", "items": [member("a"), member("b")]},),
    ({"name": "a"}, {"name": "b"}),
    ([{"name": "a"}, {"name": "b"}],),
    ({"id": "case", "clusters": [{"name": "a"}, {"name": "b"}]},),
    (member("a"), None, {"name": "b"}, placement()),
]


class TestClusters:
    """What `--clusters` reads."""

    @pytest.mark.parametrize("documents", DOCUMENTS)
    def test_takes_objects_lists_and_plain_cases(
        self, write: Any, documents: tuple[Any, ...]
    ) -> None:
        run = simulate(
            "--clusters",
            write("c.yaml", *documents),
            "--placement",
            write("p.yaml", placement()),
            "-o",
            "json",
        )

        assert json.loads(run.output)["picked"] == ["a", "b"]

    def test_takes_json(self, tmp_path: Path, write: Any) -> None:
        path = tmp_path / "c.json"
        path.write_text(
            json.dumps({"kind": "List", "apiVersion": "v1", "items": [member("a")]})
        )

        run = simulate(
            "--clusters",
            path,
            "--placement",
            write("p.yaml", placement()),
            "-o",
            "json",
        )

        assert json.loads(run.output)["picked"] == ["a"]

    def test_an_old_dump_is_judged_as_of_its_own_time(self, write: Any) -> None:
        old = member("late", "2026-01-01T11:54:59Z")

        run = simulate(
            "--clusters",
            write("c.yaml", member("a"), old),
            "--placement",
            write("p.yaml", placement()),
            "-o",
            "json",
        )

        document = json.loads(run.output)
        assert document["picked"] == ["a"]
        late = next(
            outcome for outcome in document["outcomes"] if outcome["cluster"] == "late"
        )
        assert late["outcome"] == "not eligible"
        assert late["reasons"][0]["facts"]["kind"] == "staleHeartbeat"

    def test_now_sets_the_time(self, write: Any) -> None:
        files = (
            "--clusters",
            write("c.yaml", member("a")),
            "--placement",
            write("p.yaml", placement()),
        )

        fresh = simulate(*files, "--now", "2026-01-01T12:05:00Z", "-o", "json")
        stale = simulate(*files, "--now", "2026-01-01T12:05:01Z", "-o", "json")

        assert json.loads(fresh.output)["picked"] == ["a"]
        assert json.loads(stale.output)["picked"] == []

    def test_a_cluster_without_status_counts_as_eligible_with_a_warning(
        self, write: Any
    ) -> None:
        files = (
            "--clusters",
            write("c.yaml", member("a", None)),
            "--placement",
            write("p.yaml", placement()),
        )

        lenient, strict = (
            simulate(*files, "-o", "json"),
            simulate(*files, "-o", "json", "--strict-health"),
        )

        assert json.loads(lenient.output)["picked"] == ["a"]
        assert [
            warning["code"] for warning in json.loads(lenient.output)["warnings"]
        ] == ["no-status"]
        assert json.loads(strict.output)["picked"] == []

    def test_a_file_without_a_member_cluster_is_refused(self, write: Any) -> None:
        empty = {"apiVersion": "v1", "kind": "List", "items": []}

        run = simulate(
            "--clusters",
            write("c.yaml", empty),
            "--placement",
            write("p.yaml", placement()),
        )

        assert run.status == 2
        assert "No member cluster found" in run.errors


class TestBindings:
    """What `--bindings` reads."""

    def _run(
        self,
        write: Any,
        *bindings: Any,
        number: int = 2,
        extra: tuple[object, ...] = (),
    ) -> dict[str, Any]:
        clusters = write("c.yaml", *({"name": name} for name in "abcd"))
        policy_file = write(
            "p.yaml", placement(placementType="PickN", numberOfClusters=number)
        )
        run = simulate(
            "--clusters",
            clusters,
            "--placement",
            policy_file,
            "--bindings",
            write("b.yaml", *bindings),
            "-o",
            "json",
            *extra,
        )
        assert run.errors == ""
        document: dict[str, Any] = json.loads(run.output)
        return document

    def test_plain_cases(self, write: Any) -> None:
        document = self._run(
            write, [{"cluster": "a", "state": "Bound", "policy": "current"}]
        )

        assert (document["kept"], document["picked"]) == (["a"], ["d"])

    def test_the_newest_snapshot_is_current_by_its_number(self, write: Any) -> None:
        document = self._run(
            write, hub_binding("a", "web-9"), hub_binding("b", "web-10")
        )

        assert (document["kept"], document["picked"], document["unscheduled"]) == (
            ["b"],
            ["a"],
            [],
        )
        assert (
            next(
                outcome for outcome in document["outcomes"] if outcome["cluster"] == "a"
            )["stays"]
            is True
        )

    def test_a_snapshot_can_be_named(self, write: Any) -> None:
        document = self._run(
            write,
            hub_binding("a", "web-9"),
            hub_binding("b", "web-10"),
            number=1,
            extra=("--snapshot", "web-9"),
        )

        assert (document["kept"], document["unscheduled"]) == (["a"], ["b"])

    def test_bindings_of_other_placements_are_left_out_with_a_warning(
        self, write: Any
    ) -> None:
        document = self._run(
            write, hub_binding("a", "web-0"), hub_binding("c", "x-7", of="x")
        )

        assert document["kept"] == ["a"]
        assert [warning["code"] for warning in document["warnings"]] == [
            "other-bindings"
        ]

    def test_a_binding_that_is_being_deleted_does_not_count(self, write: Any) -> None:
        deleting = hub_binding("a", "web-0")
        deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

        assert self._run(write, deleting)["kept"] == []


class TestStatus:
    """The exit status, and what is said of bad input."""

    def test_not_fulfilled_is_1(self, write: Any) -> None:
        policy_file = write(
            "p.yaml", placement(placementType="PickN", numberOfClusters=10)
        )

        assert simulate("--clusters", NINE, "--placement", policy_file).status == 1

    def test_a_failed_cycle_is_1(self, write: Any) -> None:
        sorter = {"propertySorter": {"name": "version", "sortOrder": "Descending"}}
        affinity = {
            "clusterAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": sorter}
                ]
            }
        }
        policy_file = write(
            "p.yaml",
            placement(placementType="PickN", numberOfClusters=1, affinity=affinity),
        )
        clusters = write("c.yaml", {"name": "a", "properties": {"version": "v1.30"}})

        failed = simulate(
            "--clusters",
            clusters,
            "--placement",
            policy_file,
            "--semantics",
            "kubefleet",
            "-o",
            "json",
        )
        warned = simulate(
            "--clusters", clusters, "--placement", policy_file, "-o", "json"
        )

        assert failed.status == 1
        assert json.loads(failed.output)["condition"] is None
        assert warned.status == 0
        assert "malformed-property" in [
            warning["code"] for warning in json.loads(warned.output)["warnings"]
        ]

    def test_faults_of_all_files_are_reported_at_once_with_path_and_line(
        self, write: Any
    ) -> None:
        bad = placement(placementType="PickN", numberOfCluster=3)

        run = simulate(
            "--clusters",
            write("c.yaml", {"name": "a", "lables": {}}),
            "--placement",
            write("p.yaml", bad),
        )

        assert (run.status, run.output) == (2, "")
        assert "c.yaml: lables (line 2): " in run.errors
        assert "p.yaml: spec.policy.numberOfCluster (line 13): " in run.errors
        assert 'Did you mean "numberOfClusters"?' in run.errors
        assert "p.yaml: spec.policy.numberOfClusters (line 11): " in run.errors

    def test_a_missing_file_is_named(self) -> None:
        run = simulate("--clusters", "nowhere.yaml", "--placement", WEB)

        assert (run.status, run.errors.strip()) == (
            2,
            "nowhere.yaml: Cannot read the file: No such file or directory",
        )

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "--clusters and --placement needed, or --cases"),
            (("--clusters", "-", "--placement", "-"), "only one file can be -"),
            (
                ("--clusters", NINE, "--placement", WEB, "--step", 6),
                "--step: round 6 not found",
            ),
            (
                ("--clusters", NINE, "--placement", WEB, "--step", 0),
                "--step: round 0 not found",
            ),
            (
                ("--clusters", NINE, "--placement", WEB, "--why", "missing"),
                "--why: the fleet has no cluster 'missing'",
            ),
            (
                ("--clusters", NINE, "--placement", WEB, "--name", "other"),
                "other not found in this file (allowed: one of: web)",
            ),
            (("--clusters", WEB, "--placement", WEB), "No member cluster found"),
            (
                ("--clusters", NINE, "--placement", WEB, "--now", "noon"),
                "'noon' is not `file` or a time",
            ),
            (("--cases", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        ],
    )
    def test_bad_requests_are_2(
        self, arguments: tuple[object, ...], message: str
    ) -> None:
        run = simulate(*arguments)

        assert run.status in (1, 2)
        assert message in run.errors

    def test_a_file_with_several_placements_needs_a_name(self, write: Any) -> None:
        both = write("p.yaml", placement("web"), placement("ledger"))

        unnamed = simulate("--clusters", NINE, "--placement", both)
        named = simulate("--clusters", NINE, "--placement", both, "--name", "ledger")

        assert (unnamed.status, named.status) == (2, 0)
        assert (
            "2 placements found: select one with --name (allowed: web, ledger)"
            in unnamed.errors
        )

    def test_two_clusters_of_one_name_are_refused(self, write: Any) -> None:
        run = simulate(
            "--clusters", write("c.yaml", member("a"), member("a")), "--placement", WEB
        )

        assert run.status == 2
        assert 'metadata.name (line 24): Duplicate value: "a"' in run.errors

    def test_two_bindings_on_one_cluster_are_refused(self, write: Any) -> None:
        twice = write("b.yaml", hub_binding("a", "web-0"), hub_binding("a", "web-0"))

        run = simulate("--clusters", NINE, "--placement", WEB, "--bindings", twice)

        assert run.status == 2
        assert 'Duplicate value: "a"' in run.errors

    @pytest.mark.nightly
    def test_from_a_shell_the_status_is_the_same(self, write: Any) -> None:
        unmet = write("p.yaml", placement(placementType="PickN", numberOfClusters=10))
        command = [
            sys.executable,
            "manage.py",
            "simulate",
            "--clusters",
            str(NINE),
            "--placement",
            str(unmet),
        ]

        run = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False
        )

        assert run.returncode == 1
        assert "Traceback" not in run.stderr

    def test_kinds_that_come_later_are_refused(self, write: Any) -> None:
        budget = {
            "apiVersion": "placement.kubernetes-fleet.io/v1",
            "kind": "ClusterResourcePlacementDisruptionBudget",
        }

        run = simulate("--clusters", NINE, "--placement", write("p.yaml", budget))

        assert run.status == 2
        assert "kind (line 2)" in run.errors


class TestStandardInput:
    """`-` is standard input."""

    def test_clusters_from_standard_input(self) -> None:
        run = simulate(
            "--clusters", "-", "--placement", WEB, "-o", "json", stdin=NINE.read_bytes()
        )

        assert json.loads(run.output)["picked"] == PICKS

    def test_cases_from_standard_input(self) -> None:
        lines = b'{"id": 1, "clusters": [{"name": "a"}]}\nnonsense\n{"clusters": [], "semantics": "nomad"}\n'

        run = simulate("--cases", "-", stdin=lines)

        first, second, third = map(json.loads, run.output.splitlines())
        assert run.status == 2
        assert first == {
            "id": 1,
            "picked": ["a"],
            "scores": {"a": {"topologySpreadScore": 0, "affinityScore": 0}},
            "fulfilled": True,
            "unscheduled": [],
            "kept": [],
        }
        assert (second["line"], second["error"]["code"]) == (2, "bad-syntax")
        assert (third["line"], third["error"]["code"]) == (3, "not-one-of")


class TestSemantics:
    """Other semantics, and all of them side by side."""

    def test_all_shows_where_they_part(self) -> None:
        run = simulate_demo("--semantics", "all", "-o", "json")

        document = json.loads(run.output)
        assert run.status == 0
        assert list(document["semantics"]) == [
            "fleet",
            "kubefleet",
            "ocm",
            "kubernetes",
        ]
        assert document["semantics"]["fleet"]["picked"] == PICKS
        assert document["firstDifference"]["place"] == 1
        assert document["firstDifference"]["choices"] == {
            "fleet": "quietheron",
            "kubefleet": "quietheron",
            "ocm": "bravelion",
            "kubernetes": "bravelion",
        }
        assert (
            "fleet and kubefleet select quietheron"
            in document["firstDifference"]["because"]
        )

    def test_all_is_1_when_any_of_them_is_not_fulfilled(self, write: Any) -> None:
        clusters = write(
            "c.yaml",
            *({"name": name, "labels": {"z": name[0]}} for name in ("a1", "a2", "b1")),
            {"name": "n"},
        )
        spread = [{"topologyKey": "z", "maxSkew": 1}]
        policy_file = write(
            "p.yaml",
            placement(
                placementType="PickN",
                numberOfClusters=4,
                topologySpreadConstraints=spread,
            ),
        )

        run = simulate(
            "--clusters",
            clusters,
            "--placement",
            policy_file,
            "--semantics",
            "all",
            "-o",
            "json",
        )

        fulfilled = {
            name: one["fulfilled"]
            for name, one in json.loads(run.output)["semantics"].items()
        }
        assert run.status == 1
        assert fulfilled == {
            "fleet": True,
            "kubefleet": True,
            "ocm": True,
            "kubernetes": False,
        }

    def test_all_agree_where_nothing_spreads(self, write: Any) -> None:
        policy_file = write("p.yaml", placement())

        run = simulate(
            "--clusters", NINE, "--placement", policy_file, "--semantics", "all"
        )

        assert "all place the same clusters in the same order" in run.output

    def test_all_as_csv_has_a_column_per_semantics(self) -> None:
        rows = list(
            csv.DictReader(
                io.StringIO(simulate_demo("--semantics", "all", "-o", "csv").output)
            )
        )

        bravelion = next(row for row in rows if row["cluster"] == "bravelion")
        assert bravelion == {
            "cluster": "bravelion",
            "fleet": "outranked",
            "kubefleet": "outranked",
            "ocm": "picked",
            "kubernetes": "picked",
        }

    def test_an_ocm_document_runs_as_it_stands_and_under_the_others(
        self, write: Any
    ) -> None:
        spec = {
            "numberOfClusters": 4,
            "predicates": [
                {
                    "requiredClusterSelector": {
                        "claimSelector": {
                            "matchExpressions": [{"key": "id", "operator": "Exists"}]
                        }
                    }
                }
            ],
            "spreadConstraints": [
                {
                    "type": "Even",
                    "topologyKey": "env",
                    "topologyKeyType": "Label",
                    "maxSkew": 1,
                },
                {
                    "type": "Affinity",
                    "topologyKey": "region",
                    "topologyWeights": [
                        {"weight": 9, "operator": "In", "values": ["north"]}
                    ],
                },
            ],
        }
        kind = {
            "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
            "kind": "Placement",
        }
        policy_file = write(
            "p.yaml", {**kind, "metadata": {"name": "demo"}, "spec": spec}
        )
        clusters = write(
            "c.yaml",
            *(
                {
                    "name": n,
                    "labels": {"env": n[0], "region": r},
                    "properties": {"id": "1"},
                }
                for n, r in (("a1", "x"), ("a2", "north"), ("b1", "x"))
            ),
        )

        own = json.loads(
            simulate(
                "--clusters", clusters, "--placement", policy_file, "-o", "json"
            ).output
        )
        fleet = json.loads(
            simulate(
                "--clusters",
                clusters,
                "--placement",
                policy_file,
                "--semantics",
                "fleet",
                "-o",
                "json",
            ).output
        )

        assert (own["semantics"], own["picked"]) == ("ocm", ["a2", "b1", "a1"])
        assert own["scores"]["a2"] == {
            "topologySpreadScore": [0],
            "affinityScore": 100.0,
        }
        assert fleet["picked"][0] == "a2"
        assert "left-out" in [warning["code"] for warning in fleet["warnings"]]

    def test_the_example_document_is_compared_with_what_the_others_leave_out(
        self,
    ) -> None:
        run = simulate(
            "--clusters",
            NINE,
            "--placement",
            NINE.with_name("web-ocm.yaml"),
            "--semantics",
            "all",
        )

        assert run.status == 0
        assert (
            run.output.count("have no equivalent of Steady and Balance; ignored") == 3
        )
        assert run.output.splitlines()[0] == "default/web under 4 semantics"

    @pytest.mark.parametrize("extra", [("--step", 1), ("--why", "bravelion")])
    def test_all_does_not_go_with_one_decisions_questions(
        self, extra: tuple[object, ...]
    ) -> None:
        run = simulate_demo("--semantics", "all", *extra)

        assert (run.status, run.errors) == (2, f"{extra[0]} does not go with all")

    def test_options_of_ocm_stand_in_an_annotation(self, write: Any) -> None:
        policy_file = placement(placementType="PickN", numberOfClusters=1)
        policy_file["metadata"]["annotations"] = {
            "fleetui.io/semantics": "ocm",
            "fleetui.io/spread-options": '{"mode": "wild"}',
        }

        run = simulate("--clusters", NINE, "--placement", write("p.yaml", policy_file))

        assert run.status == 2
        assert 'metadata.annotations["fleetui.io/spread-options"].mode' in run.errors
