"""Fault injection: as plain data, by an operation, by a command."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management.base import CommandError

from clusters.drivers.simulated.state import (
    USUAL,
    FaultKind,
    parse_configuration,
)
from clusters.filters import ClusterFilter, ClusterFilterState, clusters_matching
from clusters.models import MemberCluster
from clusters.operations.edit import NotSimulatedError, UnknownClusterError, set_faults
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, put_cluster
from clusters.queries import manifest_of
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from tests.commands import call_command
from tests.rows import NOW, joined, member_document, person, simulated

SILENT = {"kind": "silent"}


@pytest.mark.parametrize(
    ("connection", "faults"),
    [
        ({"fault": "sulky"}, [("connection.fault", "not-one-of")]),
        (
            {"faults": [{"kind": "sulky"}]},
            [("connection.faults[0].kind", "not-one-of")],
        ),
        ({"faults": [{}]}, [("connection.faults[0].kind", "required")]),
        ({"faults": {"kind": "silent"}}, [("connection.faults", "wrong-type")]),
        (
            {"faults": [SILENT | {"until": "tomorrow"}]},
            [("connection.faults[0].until", "bad-format")],
        ),
        (
            {"faults": [SILENT | {"image": "2.1"}]},
            [("connection.faults[0].image", "forbidden-for-type")],
        ),
        (
            {"faults": [SILENT | {"whim": 1}]},
            [("connection.faults[0].whim", "unknown-field")],
        ),
        (
            {"faults": [{"kind": "lostState"}]},
            [("connection.faults[0].since", "required")],
        ),
        (
            {"faults": [{"kind": "timeOut", "calls": ["aply"]}]},
            [("connection.faults[0].calls[0]", "not-one-of")],
        ),
        (
            {
                "applyMilliseconds": -1,
                "faults": [SILENT, {"kind": "flap", "periodSeconds": 0}],
            },
            [
                ("connection.applyMilliseconds", "out-of-range"),
                ("connection.faults[1].periodSeconds", "out-of-range"),
            ],
        ),
    ],
)
def test_a_malformed_connection_is_refused_with_all_its_faults(
    connection: dict[str, Any], faults: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidManifest) as caught:
        parse_configuration(connection)

    assert [(fault.path, fault.code) for fault in caught.value.errors] == faults


def test_the_short_form_is_one_fault_and_an_empty_connection_the_usual() -> None:
    assert [
        simulated_fault.kind
        for simulated_fault in parse_configuration({"fault": "silent"}).faults
    ] == [FaultKind.SILENT]
    assert parse_configuration({}) == USUAL == parse_configuration({"faults": []})


def test_a_fault_holds_from_its_beginning_until_just_before_its_end() -> None:
    until = NOW + timedelta(minutes=1)
    found = parse_configuration(
        {"faults": [SILENT | {"since": NOW.isoformat(), "until": until.isoformat()}]}
    )

    moments = [NOW - timedelta(seconds=1), NOW, until - timedelta(seconds=1), until]

    assert [bool(found.faults_at(moment)) for moment in moments] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.django_db
class TestOperation:
    """`set_faults`."""

    def test_a_cluster_with_an_injected_fault_is_observed_at_once(self) -> None:
        simulated("a")
        observe(now=NOW)

        set_faults(
            "a", [SILENT], by=person("ana", "operator"), now=NOW + timedelta(seconds=1)
        )

        assert observe(now=NOW + timedelta(seconds=1)).silent == 1
        event, late = Event.objects.order_by("pk")[Event.objects.count() - 2 :]
        assert late.verb == "heartbeat late"
        assert (event.actor_name, event.verb, event.name, event.revision) == (
            "ana",
            "fault injected",
            "a",
            2,
        )
        assert (event.before, event.after) == ({"faults": []}, {"faults": [SILENT]})

    def test_faults_replace_those_before_and_leave_the_rest_of_the_connection(
        self,
    ) -> None:
        row = simulated("a", fault="unhealthy")
        MemberCluster.objects.update(connection={**row.connection, "readySeconds": 9})

        set_faults("a", [SILENT], by=None, now=NOW)
        assert MemberCluster.objects.get().connection == {
            "readySeconds": 9,
            "faults": [SILENT],
        }

        set_faults("a", [], by=None, now=NOW)
        assert MemberCluster.objects.get().connection == {"readySeconds": 9}
        assert Event.objects.latest("pk").verb == "faults cleared"

    def test_the_same_faults_again_change_nothing(self) -> None:
        simulated("a", fault="silent")

        assert set_faults("a", [SILENT], by=None, now=NOW).revision == 1
        assert Event.objects.count() == 1

    def test_bad_ones_are_refused_and_change_nothing(self) -> None:
        simulated("a")

        with pytest.raises(InvalidManifest) as caught:
            set_faults("a", [{"kind": "sulky"}], by=None, now=NOW)

        assert [fault.path for fault in caught.value.errors] == ["faults[0].kind"]
        assert MemberCluster.objects.get().connection == {}

    def test_only_a_simulated_cluster_takes_injected_faults(self) -> None:
        joined("real")

        with pytest.raises(NotSimulatedError):
            set_faults("real", [SILENT], by=None, now=NOW)
        with pytest.raises(UnknownClusterError):
            set_faults("ghost", [SILENT], by=None, now=NOW)

    def test_a_stale_edit_is_refused(self) -> None:
        simulated("a")

        with pytest.raises(RevisionConflict):
            set_faults("a", [SILENT], by=None, now=NOW, expected=7)


@pytest.mark.django_db
class TestCommand:
    """`manage.py fault`."""

    def test_it_adds_lists_and_clears(self) -> None:
        simulated("a")

        fault("a", "refuse", "--kind", "Deployment", "--image", "2.1")
        said = fault("a", "unhealthy")

        refusing = {"kind": "refuse", "objectKind": "Deployment", "image": "2.1"}
        assert [json.loads(line) for line in said.splitlines()] == [
            refusing,
            {"kind": "unhealthy"},
        ]
        assert fault("a") == said
        assert json.loads(fault("a", "unhealthy", "--clear")) == refusing
        assert fault("a", "--clear") == "No active faults\n"

    def test_it_lasts_as_long_as_it_says(self) -> None:
        simulated("a")

        said = json.loads(fault("a", "unreachable", "--for", "5m"))

        left = datetime.fromisoformat(said["until"]) - datetime.now(UTC)
        assert timedelta(minutes=4) < left <= timedelta(minutes=5)

    def test_a_kind_that_there_is_not_is_refused_with_those_that_there_are(
        self,
    ) -> None:
        with pytest.raises(
            CommandError, match=r"choose from '?unreachable'?, '?silent'?"
        ):
            fault("a", "tired")

    @pytest.mark.parametrize("kind", ["lostState", "flap"])
    def test_what_needs_a_beginning_begins_now(self, kind: str) -> None:
        simulated("a")

        assert "since" in json.loads(fault("a", kind))

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (("ghost", "silent"), 1, "cluster 'ghost' not found"),
            (("real", "silent"), 1, "real is not a simulated cluster"),
            (("real",), 1, "real is not a simulated cluster"),
            (
                ("a", "silent", "--for", "a while"),
                1,  # 2 from a shell, where the parser itself ends the process
                "Error: argument --for: Invalid value: 'a while': must be a duration, such as 5m or 1h30m",
            ),
            (
                ("a", "silent", "--image", "2.1"),
                2,
                "faults[0].image: says nothing about a fault of kind silent",
            ),
        ],
    )
    def test_bad_input_is_refused(
        self, arguments: tuple[str, ...], code: int, words: str
    ) -> None:
        simulated("a")
        joined("real")

        with pytest.raises(CommandError) as caught:
            fault(*arguments)

        assert str(caught.value).startswith(words)
        assert caught.value.returncode == code


@pytest.mark.django_db
class TestWhereItAppears:
    """A simulated cluster says so."""

    def test_it_says_so_in_its_status_and_can_be_filtered_for(self) -> None:
        simulated("a")
        joined("real")

        said = {
            row.name: manifest_of(row)["status"].get("simulated", False)
            for row in MemberCluster.objects.all()
        }

        assert said == {"a": True, "real": False}
        assert [
            row.name
            for row in clusters_matching(
                ClusterFilter(state=ClusterFilterState.SIMULATED)
            )
        ] == ["a"]

    def test_what_it_exports_can_be_imported_as_another_hubs_cluster(self) -> None:
        simulated("a")
        exported = manifest_of(MemberCluster.objects.get())
        MemberCluster.objects.all().delete()

        put_cluster(ClusterSpec(exported), by=None, now=NOW)

        assert not MemberCluster.objects.get().is_simulated

    def test_a_cluster_with_a_malformed_connection_does_not_join(self) -> None:
        wanted = ClusterSpec(
            member_document("a"), driver="simulated", connection={"fault": "sulky"}
        )

        with pytest.raises(InvalidManifest):
            put_cluster(wanted, by=None, now=NOW)


def fault(*arguments: str) -> str:
    """Run the command; return what it printed."""
    out = StringIO()
    call_command("fault", *arguments, stdout=out)
    return out.getvalue()
