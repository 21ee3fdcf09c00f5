"""What a request computes is bounded: its time, the work of the scheduler, and the size of its response."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client, override_settings
from rest_framework.test import APIClient

from clusters.fleet import Cluster, Fleet
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui import middleware
from fleetui.apimachinery.effort import EffortBounds, TooMuchWorkError, bounded_effort
from fleetui.apimachinery.model import Semantics
from placements.engine.advice.search import how_to_fulfil
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.explain.decision_document import MOST_FACTS, decision_document
from placements.models import Decision, Placement
from placements.services.resources.operations import apply_resource
from tests.api.schema import generated_schema
from tests.caches import forget_budgets
from tests.page_samples import sample_pages
from tests.rows import (
    NOW,
    decided,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
)

KEYS = ("k0", "k1", "k2")
SPREAD = [{"topologyKey": key, "maxSkew": 1} for key in KEYS]
LARGEST_RESPONSE = 1_500_000


@pytest.fixture(autouse=True)
def _full_budgets() -> None:
    forget_budgets()


def labels(number: int) -> dict[str, str]:
    """Return labels that no other cluster has: each cluster is a domain of its own for every key."""
    return dict.fromkeys(KEYS, f"v{number}")


def simulation(clusters: int, **options: Any) -> dict[str, Any]:
    """Return the body of a simulation of which all rounds would be clusters² numbers."""
    fleet = [
        {"name": f"c{number}", "labels": labels(number)} for number in range(clusters)
    ]
    document = placement_document(
        "x", pick_n_spec(clusters // 2, topologySpreadConstraints=SPREAD)
    )
    return {"clusters": fleet, "placement": document, **options}


def cycle(clusters: int, semantics: Semantics = Semantics.FLEET) -> Cycle:
    fleet = Fleet(Cluster(f"c{number}", labels(number)) for number in range(clusters))
    policy = Cycle(fleet).policy.from_plain(
        {
            "placementType": "PickN",
            "numberOfClusters": clusters // 2,
            "topologySpreadConstraints": SPREAD,
        }
    )
    return Cycle(fleet, policy, semantics=semantics)


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_a_simulation_leaves_out_what_would_be_too_large(reader: APIClient) -> None:
    body = simulation(600)

    answer = reader.post("/api/v1/simulate", body)
    one = reader.post("/api/v1/simulate", {**body, "step": 7})
    several = reader.post("/api/v1/simulate", {**body, "semantics": "all"})
    few = reader.post("/api/v1/simulate", simulation(60)).json()

    assert [response.status_code for response in (answer, one, several)] == [200] * 3
    assert len(answer.content) < LARGEST_RESPONSE
    assert len(one.content) < LARGEST_RESPONSE
    assert len(several.content) < 4 * LARGEST_RESPONSE
    document = answer.json()
    assert (document["rounds"], len(document["picked"]), len(document["outcomes"])) == (
        None,
        300,
        600,
    )
    [warning] = [one for one in document["warnings"] if one["code"] == "shortened"]
    assert warning["path"] == "rounds"
    assert (
        "300 rounds with 1,800 domains each; request one as step" in warning["message"]
    )
    [shown] = one.json()["rounds"]
    assert (shown["round"], len(shown["candidates"])) == (7, 594)
    assert len(few["rounds"]) == 30
    assert "shortened" not in {one["code"] for one in few["warnings"]}


def test_a_round_and_its_candidates_are_shortened_and_say_so() -> None:
    decision = schedule(cycle(90))

    whole = decision_document(decision, step=3)
    shortened = decision_document(decision, step=3, most_facts=150)

    assert (len(whole["rounds"]), len(whole["outcomes"])) == (45, 90)
    [step] = shortened["rounds"]
    assert step["groupsCount"] == dict.fromkeys(KEYS, 90)
    assert {len(counts) for counts in step["groups"].values()} == {50}
    assert sum(step["groups"]["k0"].values()) == 2, "the fullest domains are kept"
    assert len(step["candidates"]) == 150 // 4
    assert shortened["outcomes"] is None
    assert [warning["path"] for warning in shortened["warnings"]] == [
        "rounds",
        "outcomes",
    ]


@pytest.mark.nightly
@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_no_page_and_no_response_lists_every_domain_of_every_round() -> None:
    fleet = [
        ClusterSpec(member_document(f"c{number}", labels(number)))
        for number in range(600)
    ]
    upsert_clusters(fleet, by=None, now=NOW)
    apply_resource(namespace("shop"), by=None, now=NOW)
    decided("web", pick_n_spec(300, topologySpreadConstraints=SPREAD))
    by = person("ana", "operator", "approver", "cluster-administrator")
    record = Decision.objects.get(placement_name="web").record
    pages = set(sample_pages(cluster="c7", placement="web", by=by, now=NOW).values())
    pages |= {f"/decisions/{record.decision_id}/?step={step}" for step in (1, 300)}
    names = {
        "decision": record.decision_id,
        "number": 1,
        "placement": "web",
        "cluster": "c7",
    }
    rest = {
        path.format_map({**dict.fromkeys(_places(path), "web"), **names, "name": name})
        for path, methods in generated_schema()["paths"].items()
        if "get" in methods
        for name in ("web", "c7")
    }
    client = Client()
    client.force_login(by)

    sizes = {}
    for address in (*pages, *rest, *(f"{one}?limit=100" for one in rest)):
        forget_budgets()
        answer = client.get(address)
        assert answer.status_code < 500, address
        sizes[address] = 0 if answer.streaming else len(answer.content)

    assert f"/api/v1/decisions/{record.decision_id}/rounds?limit=100" in sizes
    assert len(sizes) > 200
    assert {
        address: size for address, size in sizes.items() if size > LARGEST_RESPONSE
    } == {}
    assert len(record.content) < 100_000, "the record itself has no rounds"
    rounds, address = [], f"/api/v1/decisions/{record.decision_id}/rounds?limit=100"
    while address:
        page = client.get(address).json()
        rounds += [item["round"] for item in page["items"]]
        address = page["next"]
    assert rounds == list(range(1, 301))


def _places(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


# --- work and time ------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_every_way_to_compute_refuses_too_much_work_and_ends_in_time(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        joined(f"c{number}", **labels(number))
    decided("web", pick_n_spec(2, topologySpreadConstraints=SPREAD))
    decision = Decision.objects.get().record.decision_id
    edited = placement_document("web", pick_n_spec(3, topologySpreadConstraints=SPREAD))
    browser = Client()
    browser.force_login(person("ana", "operator"))
    calls: dict[str, Callable[[], Any]] = {
        "simulate": lambda: api.post("/api/v1/simulate", simulation(3)),
        "simulate all": lambda: api.post(
            "/api/v1/simulate", simulation(3, semantics="all")
        ),
        "preview": lambda: api.post("/api/v1/placements/preview", edited),
        "preview semantics": lambda: api.post(
            "/api/v1/placements/preview/semantics", edited
        ),
        "what-if": lambda: api.post("/api/v1/what-if", {"clusters": ["c1"]}),
        "semantics": lambda: api.get(f"/api/v1/decisions/{decision}/semantics"),
        "advice": lambda: api.get(f"/api/v1/decisions/{decision}/clusters/c0/advice"),
        "reschedule": lambda: api.get("/api/v1/placements/web/reschedule"),
        "drain": lambda: api.get("/api/v1/clusters/c1/drain"),
        "page of rescheduling": lambda: browser.get("/placements/web/reschedule/"),
        "page of rules": lambda: browser.get(f"/decisions/{decision}/semantics/"),
    }
    for what, call in calls.items():
        forget_budgets()
        with monkeypatch.context() as patched:
            patched.setattr(middleware, "MOST_COMPARISONS", 2)
            refused = call()
        forget_budgets()
        with override_settings(COMPUTE_SECONDS=-1):
            late = call()

        assert (what, refused.status_code) == (what, 422)
        assert b"Reduce numberOfClusters, the constraints" in refused.content, what
        assert (what, late.status_code) == (what, 503)
        assert b"seconds of a processor and was ended" in late.content, what
        if refused.headers["Content-Type"] == "application/problem+json":
            assert refused.json()["type"] == "urn:fleetui:problem:too-much-work"
            assert late.json()["type"] == "urn:fleetui:problem:too-long"
            assert late.headers["Retry-After"]


@pytest.mark.django_db
def test_a_worker_decides_what_no_request_may_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(middleware, "MOST_COMPARISONS", 0)
    for number in range(3):
        joined(f"c{number}", **labels(number))

    decided("web", pick_n_spec(2, topologySpreadConstraints=SPREAD))

    assert Placement.objects.get().is_fulfilled


class TimeIsOverError(Exception):
    """What a door raises when its time is over."""


def ends_after(checks: int) -> EffortBounds:
    left = [checks]

    def check_time() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise TimeIsOverError

    return EffortBounds(check_time, most_comparisons=10**12)


@pytest.mark.parametrize("semantics", list(Semantics))
def test_every_loop_of_the_engine_looks_at_the_time(semantics: Semantics) -> None:
    subject = cycle(400, semantics)
    decision = schedule(subject)
    unfulfilled = schedule(
        replace(
            subject,
            policy=subject.policy.model_copy(update={"number_of_clusters": 500}),
        )
    )
    loops: dict[str, Callable[[], object]] = {
        "picks": lambda: schedule(subject),
        "rounds": lambda: list(Replay(decision)),
        "outcomes": lambda: list(Outcomes(decision)),
        "advice": lambda: how_to_fulfil(unfulfilled),
    }
    for loop in loops.values():
        with bounded_effort(ends_after(4)), pytest.raises(TimeIsOverError):
            loop()
    assert schedule(subject).picked_names == decision.picked_names, (
        "nothing is left of the bounds"
    )


@pytest.mark.parametrize("semantics", list(Semantics))
def test_the_work_is_counted_in_combinations_of_domains_and_not_in_clusters(
    semantics: Semantics,
) -> None:
    never = EffortBounds(lambda: None, most_comparisons=100 * 50 * 3 - 1)
    with (
        bounded_effort(never),
        pytest.raises(
            TooMuchWorkError, match="50 clusters to select from 100 combinations"
        ),
    ):
        schedule(cycle(100, semantics))
    with bounded_effort(replace(never, most_comparisons=100 * 50 * 3)):
        schedule(cycle(100, semantics))
    few = Fleet(
        Cluster(f"c{number}", dict.fromkeys(KEYS, f"v{number % 4}"))
        for number in range(100)
    )
    with bounded_effort(replace(never, most_comparisons=4 * 50 * 3)):
        assert len(schedule(replace(cycle(100, semantics), fleet=few)).picked) == 50


def test_a_record_has_no_rounds_and_stays_small() -> None:
    assert len(pack(schedule(cycle(2000)))) < 50_000
    assert MOST_FACTS < 1000 * 6000
