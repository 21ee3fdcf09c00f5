"""Decisions over REST: records, rounds, outcomes in words, advice, tables."""

import csv
import io

import pytest
from django.core.cache import caches
from rest_framework.test import APIClient

from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.middleware import RequestTooLongError
from placements.models import Decision, DecisionRecord, Placement
from placements.services.decisions import exact
from placements.services.decisions.records import recorded
from placements.tasks import search_exactly
from tests.builders import labelled, prefer
from tests.live_hubs import live_hub
from tests.rows import all_joined, decided, joined, pick_n_spec

SPREAD = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
DECISIONS = "/api/v1/decisions"

pytestmark = pytest.mark.django_db


@pytest.fixture
def decision() -> str:
    """Return the id of a decision: two of three, one in each of two regions."""
    joined("a", region="east")
    joined("b", region="east")
    joined("c", region="west")
    decided("web", pick_n_spec(2, topologySpreadConstraints=[SPREAD]))
    return DecisionRecord.objects.get().decision_id


def test_the_record_has_everything_when_it_is_small(
    reader: APIClient, decision: str
) -> None:
    record = reader.get(f"{DECISIONS}/{decision}").json()

    assert (record["id"], record["picked"], record["fulfilled"]) == (
        decision,
        ["c", "b"],
        True,
    )
    assert [one["winner"] for one in record["rounds"]] == ["c", "b"]
    assert [outcome["outcome"] for outcome in record["outcomes"]] == [
        "outranked",
        "picked",
        "picked",
    ]
    assert record["cycles"][0]["placement"] == "web"


@pytest.mark.nightly
def test_large_records_are_fetched_in_parts(reader: APIClient) -> None:
    all_joined(*(f"c{number:03}" for number in range(201)))
    decided("web", pick_n_spec(60, topologySpreadConstraints=[SPREAD]))
    address = f"{DECISIONS}/{DecisionRecord.objects.get().decision_id}"

    record = reader.get(address).json()
    page = reader.get(f"{address}/rounds?limit=50").json()
    rest = reader.get(page["next"]).json()

    assert (record["rounds"], record["outcomes"]) == (None, None)
    assert (record["numberOfRounds"], record["numberOfClusters"]) == (60, 201)
    assert [item["round"] for item in page["items"] + rest["items"]] == [*range(1, 61)]
    assert rest["next"] is None


@pytest.mark.nightly
def test_large_records_side_by_side_leave_rounds_and_outcomes_out(
    reader: APIClient,
) -> None:
    all_joined(*(f"c{number:03}" for number in range(201)))
    soft = {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}
    decided("web", pick_n_spec(60, topologySpreadConstraints=[soft]))

    sides = reader.get(
        f"{DECISIONS}/{DecisionRecord.objects.get().decision_id}/semantics"
    ).json()

    for semantic in sides["semantics"].values():
        assert (
            semantic["numberOfRounds"],
            semantic["numberOfClusters"],
            len(semantic["picked"]),
        ) == (
            60,
            201,
            60,
        )
        assert (semantic["rounds"], semantic["outcomes"]) == (None, None)


def test_an_exact_search_answers_at_once_or_is_left_to_a_worker(
    reader: APIClient, decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{DECISIONS}/{decision}/exact"
    small = reader.post(address).json()
    assert (small["verdict"], small["most"], small["columns"]["exact"]["skew"]) == (
        "optimal",
        [2, 2],
        0,
    )
    for body in ({"stages": ["n", "best"]}, {"limitSeconds": 1e9}, {"limit": 2}):
        assert reader.post(address, body, format="json").status_code in (400, 422), body

    monkeypatch.setattr(exact, "is_small", lambda _model: False)
    wanted = {"stages": ["n", "skew"], "limitSeconds": 20}
    started = reader.post(address, wanted, format="json")
    result, search = started.headers["Location"], started.json()["id"]
    assert (started.status_code, result.endswith(f"/api/v1/exact/{search}")) == (
        202,
        True,
    )
    cache = caches["default"]
    cache.add("exact-search", "another", 60)
    search_exactly(search=search, hub=LOCAL_HUB)
    assert reader.get(result).status_code == 202, "one search at a time"
    cache.delete("exact-search")
    search_exactly(search=search, hub=LOCAL_HUB)
    large = reader.get(result).json()
    assert (large["verdict"], large["picks"]) == ("optimal", small["picks"])
    assert (large["id"], search) == (search, large["id"])
    assert reader.post(address, wanted, format="json").json() == large
    assert reader.get("/api/v1/exact/x-0").status_code == 404
    with in_hub(live_hub("prod-eu").pk), pytest.raises(exact.UnknownSearchError):
        exact.result_of(search)  # a search of another hub


def test_one_large_search_at_a_time_is_kept_and_has_a_price(
    decision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, spent = recorded(decision)[1], list[float]()
    monkeypatch.setattr(exact, "is_small", lambda _model: False)
    monkeypatch.setattr(
        exact, "settle", lambda _user, *, deposit, used: spent.append(used - deposit)
    )
    monkeypatch.setattr(exact, "GRACE_SECONDS", 0.01)
    with exact._place, pytest.raises(RequestTooLongError):
        exact.searched(value, user=1)
    found = [exact.searched(value, user=1) for _ in range(2)]

    assert found[0] == found[1]
    [seconds] = spent
    assert seconds > found[0].seconds


@pytest.mark.nightly
@pytest.mark.parametrize("length", [4, 12, 32])
def test_the_beginning_of_an_id_will_do(
    reader: APIClient, decision: str, length: int
) -> None:
    assert reader.get(f"{DECISIONS}/{decision[: 2 + length]}").json()["id"] == decision


@pytest.mark.nightly
@pytest.mark.parametrize(
    "given", ["d-123", "d-0000", "26de", "d-XYZW", "d-%25", "d-" + "0" * 33]
)
def test_an_invalid_id_is_not_found(reader: APIClient, given: str) -> None:
    assert reader.get(f"{DECISIONS}/{given}").status_code == 404


def test_an_ambiguous_beginning_lists_what_it_may_mean(
    reader: APIClient, decision: str
) -> None:
    record = DecisionRecord.objects.get()
    other = decision[:8] + "f" * 26
    alike = DecisionRecord.objects.create(
        decision_id=other,
        content=record.content,
        engine=record.engine,
        fleet=record.fleet,
    )
    cycle = Decision.objects.latest(
        "pk"
    )  # a record is found through the decisions that cite it
    cycle.pk, cycle.number, cycle.record = None, cycle.number + 1, alike
    cycle.save()

    answer = reader.get(f"{DECISIONS}/{decision[:7]}")

    assert answer.status_code == 409
    assert answer.json()["decisions"] == sorted([decision, other])


@pytest.mark.nightly
def test_a_round_has_its_candidates(reader: APIClient, decision: str) -> None:
    one = reader.get(f"{DECISIONS}/{decision}/rounds/2?limit=1").json()

    assert (one["winner"], one["candidatesCount"], len(one["candidates"])) == (
        "b",
        2,
        1,
    )
    assert one["groups"] == {"region": {"east": 0, "west": 1}}
    assert reader.get(f"{DECISIONS}/{decision}/rounds/3").status_code == 404
    assert reader.get(f"{DECISIONS}/{decision}/rounds/0").status_code == 404


def test_an_outcome_has_words_and_candidacies(reader: APIClient, decision: str) -> None:
    outcome = reader.get(f"{DECISIONS}/{decision}/clusters/a").json()

    assert outcome["outcome"] == "outranked"
    assert outcome["reasons"][0]["words"]
    assert [candidacy["round"] for candidacy in outcome["candidacies"]] == [1, 2]
    assert outcome["candidacies"][0]["candidate"]["rank"] == 3


def test_a_picked_cluster_competed_until_it_was_picked(
    reader: APIClient, decision: str
) -> None:
    outcome = reader.get(f"{DECISIONS}/{decision}/clusters/c").json()

    assert [candidacy["round"] for candidacy in outcome["candidacies"]] == [1]
    assert outcome["next"] is None


@pytest.mark.nightly
def test_a_cluster_that_lost_its_place_competed_for_it(reader: APIClient) -> None:
    for name in ("a", "b"):
        joined(name, tier=name)
    decided("web", pick_n_spec(1))
    terms = [prefer(20, labelled(tier="a"))]
    affinity = {
        "clusterAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    }
    decided("web", pick_n_spec(1, affinity=affinity))
    decision = Decision.objects.latest("number").record.decision_id

    outcome = reader.get(f"{DECISIONS}/{decision}/clusters/b").json()

    assert outcome["outcome"] == "unscheduled"
    assert [candidacy["round"] for candidacy in outcome["candidacies"]] == [1]


def test_candidacies_go_on(reader: APIClient, decision: str) -> None:
    first = reader.get(f"{DECISIONS}/{decision}/clusters/a?limit=1").json()
    second = reader.get(first["next"]).json()

    assert [
        candidacy["round"] for candidacy in first["candidacies"] + second["candidacies"]
    ] == [
        1,
        2,
    ]
    assert second["next"] is None


def test_advice_says_what_would_help(reader: APIClient, decision: str) -> None:
    advice = reader.get(f"{DECISIONS}/{decision}/clusters/a/advice").json()

    assert advice["outcome"]["outcome"] == "outranked"
    assert [one["change"]["words"] for one in advice["wouldHelp"]]


def test_a_cluster_that_was_not_there_is_not_found(
    reader: APIClient, decision: str
) -> None:
    for address in ("missing", "missing/advice"):
        assert (
            reader.get(f"{DECISIONS}/{decision}/clusters/{address}").status_code == 404
        )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("address", "accept"),
    [("{}.csv", "*/*"), ("{}?format=csv", "*/*"), ("{}", "text/csv")],
)
def test_outcomes_come_as_a_table(
    reader: APIClient, decision: str, address: str, accept: str
) -> None:
    answer = reader.get(
        f"{DECISIONS}/{address.format(decision)}", headers={"accept": accept}
    )

    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert [(row["cluster"], row["outcome"]) for row in rows] == [
        ("a", "outranked"),
        ("b", "picked"),
        ("c", "picked"),
    ]


def test_outcomes_are_listed_and_narrowed_down(
    reader: APIClient, decision: str
) -> None:
    first = reader.get(f"{DECISIONS}/{decision}/clusters?outcome=picked&limit=1").json()
    second = reader.get(first["next"]).json()

    assert [item["cluster"] for item in first["items"] + second["items"]] == ["b", "c"]
    assert second["next"] is None


@pytest.mark.servers
def test_decisions_outlive_their_placement(reader: APIClient, decision: str) -> None:
    Placement.objects.get().bindings.all().delete()
    Placement.objects.all().delete()

    items = reader.get(f"{DECISIONS}?placement=web").json()["items"]

    assert [item["id"] for item in items] == [decision]
    assert Decision.objects.get().placement is None
