"""The random campaign, with a look at pages, REST and metrics between its steps: all say what the books say.

The books are those of the simulated clusters: what is on each of them, and of which version.
"""

import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver
from hypothesis import Phase as HypothesisPhase
from hypothesis import seed
from hypothesis.stateful import invariant, run_state_machine_as_test
from prometheus_client.parser import text_string_to_metric_families

from clusters.models import MemberCluster, SimulatedPlacement
from placements.engine.problems import headline
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.health import healths_of
from tests.database import compare_all
from tests.services.test_random_campaign import Campaign, _Clock, campaign, options
from tests.services.test_situations import text_of

__all__ = ["campaign"]
EVERY = 5
CLOCKED = (
    *(
        "placements.web.",
        "placements.api.",
        "placements.services.filters",
        "placements.services.status",
    ),
    *(
        "placements.services.dashboard.",
        "placements.services.rollouts.",
        "fleetui.metrics",
    ),
)
STATES = (
    *("available", "pending", "inProgress", "notAvailable", "failed", "differs"),
    *("unreachable", "notObserved", "notMonitored", "notReady"),
)


class ComparedCampaign(Campaign):
    """A campaign in which every few steps all that can be read is compared with the books."""

    looks = 0

    def begin(self) -> None:
        """Begin as ever, with a reader of pages."""
        super().begin()
        self.reader = Client()
        self.reader.force_login(User.objects.create_superuser("reader"))

    @invariant()
    def all_say_what_the_books_say(self) -> None:
        """Compare, after what is due is done."""
        self.looks += 1
        if self.looks % EVERY:
            return
        self.work()
        compare_all(now=self.world.now)
        assert [*self.differences()] == []

    def differences(self) -> Iterator[str]:
        """Yield what one place says and another one, or the books, do not."""
        yield from self.of_placements()
        yield from self.of_clusters()
        yield from self.of_totals()
        yield from self.of_what_is_wrong()

    def of_placements(self) -> Iterator[str]:
        """REST, list and page agree about a placement; what is called available is on its cluster."""
        listed = {
            document["name"]: document["health"]
            for document in self.items("placements")
        }
        page = text_of(self.reader, "/placements/")
        found = held_versions()
        for row in Placement.objects.all():
            health = self.reader.get(f"/api/v1/placements/{row.name}").json()["status"][
                "health"
            ]
            if listed.get(row.name) != health:
                yield f"{row}: the list has {listed.get(row.name)}, and REST {health}"
            if (
                sum(health["counts"][state] for state in STATES)
                != health["counts"]["scheduled"]
            ):
                yield f"{row}: the counts do not add up: {health['counts']}"
            summary = healths_of([row], now=self.world.now)[row.pk].summary
            for place, text in (
                ("list", page),
                ("page", text_of(self.reader, f"/placements/{row.name}/")),
            ):
                if summary not in text:
                    yield f"{row}: the {place} does not say {summary}"
            selected = row.bindings.exclude(state=BindingState.UNSCHEDULED)
            for binding in selected.filter(
                phase=Phase.AVAILABLE, cluster_name__in=members_without_faults()
            ):
                if (
                    found.get((binding.cluster_name, row.full_name))
                    != binding.applied_version
                ):
                    yield f"{row} is not on {binding.cluster_name}, where it is available"
            count = selected.filter(phase=Phase.AVAILABLE).count()
            if (
                health["counts"]["available"]
                > count + selected.filter(phase=Phase.APPLIED).count()
            ):
                yield f"{row}: {health['counts']} are available, and {count} bindings"

    def of_clusters(self) -> Iterator[str]:
        """REST and pages list the same clusters, each with the bindings that it has."""
        names = set(MemberCluster.objects.values_list("name", flat=True))
        if {document["name"] for document in self.items("clusters")} != names:
            yield f"REST does not list {names}"
        page = self.reader.get("/clusters/").content.decode()
        for name in names:
            if name not in page:
                yield f"{name} is not in the list of clusters"
            own = self.reader.get(f"/clusters/{name}/").content.decode()
            for binding in Binding.objects.filter(cluster_name=name).exclude(
                state=BindingState.UNSCHEDULED
            ):
                if f"/placements/{binding.placement.full_name}/" not in own:
                    yield f"the page of {name} does not list {binding.placement.full_name}"

    def of_totals(self) -> Iterator[str]:
        """Metrics and REST count as many placements of a state; the inbox has those that are degraded."""
        text = self.reader.get("/metrics").content.decode()
        gauges = {
            sample.labels.get("state"): sample.value
            for metric in text_string_to_metric_families(text)
            if metric.name == "fleetui_placements"
            for sample in metric.samples
        }
        for state in (PlacementFilterState.DEGRADED, PlacementFilterState.UNFULFILLED):
            rows = placements_matching(PlacementFilter(state=state))
            counts = (
                gauges[state],
                len(self.items(f"placements?state={state}")),
                rows.count(),
            )
            if len(set(counts)) > 1:
                yield f"{state}: metrics, REST and rows count {counts}"

    def of_what_is_wrong(self) -> Iterator[str]:
        """The inbox has each degraded placement; overview, REST and navigation count as the lists do."""
        inbox = self.items("inbox")
        named = {
            name.partition("/")[0]
            for item in inbox
            for name in (item["name"], *item["following"])
        }
        degraded = placements_matching(
            PlacementFilter(state=PlacementFilterState.DEGRADED)
        )
        if missing := set(degraded.values_list("full_name", flat=True)) - named:
            yield f"the inbox does not have {missing}"
        overview = self.reader.get("/api/v1/overview").json()
        unfulfilled = placements_matching(
            PlacementFilter(state=PlacementFilterState.UNFULFILLED)
        )
        for name, rows in (
            ("clusters", MemberCluster.objects.all()),
            ("placements", Placement.objects.all()),
            ("notFulfilled", unfulfilled),
        ):
            if overview[name] != rows.count():
                yield f"the overview counts {overview[name]} {name}, not {rows.count()}"
        page = text_of(self.reader, "/")
        for cause in overview["attention"]:
            # A group has its message below its name.
            said = (
                [cause["message"]]
                if cause["key"].startswith("clusters/")
                else headline(cause["message"])
            )
            if any(one not in page for one in said):
                yield f"the overview does not say {cause['message']}"

    def items(self, path: str) -> list[dict[str, Any]]:
        """Return the items of a list over REST."""
        return list(self.reader.get(f"/api/v1/{path}").json()["items"])


def members_without_faults() -> list[str]:
    rows = MemberCluster.objects.filter(verdict="", unanswered_since=None)
    return [row.name for row in rows if row.connection.get("faults", []) == []]


def held_versions() -> dict[tuple[str, str], str]:
    """Return the version that each simulated cluster holds of each placement, by their names."""
    rows = SimulatedPlacement.objects.exclude(placement_name="").filter(is_held=True)
    return {
        (cluster, placement): content["held"]["version"]
        for cluster, placement, content in rows.values_list(
            "cluster__name", "placement_name", "content"
        )
    }


@pytest.fixture
def compared(
    campaign: type[Campaign],  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> type[ComparedCampaign]:
    """Return the machine, with its clock in all pages and in REST."""
    assert get_resolver().url_patterns  # they import all modules of pages
    for name, module in list(sys.modules.items()):
        if name.startswith(CLOCKED) and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", _Clock)
    return ComparedCampaign


def test_what_a_few_sequences_show_is_what_the_books_say(
    compared: type[ComparedCampaign],
) -> None:
    generate = [HypothesisPhase.generate]
    several = options(2, 10, derandomize=True, database=None, phases=generate)
    run_state_machine_as_test(compared, settings=several)


@pytest.mark.nightly
def test_what_many_sequences_show_is_what_the_books_say(
    compared: type[ComparedCampaign],
) -> None:
    given = os.environ.get("CAMPAIGN_SEED")
    seeds = [int(given)] if given else range(40)
    for chosen in seeds:
        sys.stdout.write(f"CAMPAIGN_SEED={chosen}\n")
        forms = [HypothesisPhase.generate]
        several = options(1, 30, derandomize=False, database=None, phases=forms)
        run_state_machine_as_test(seed(chosen)(compared), settings=several)
