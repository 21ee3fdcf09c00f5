"""Every page with rollouts on their way: limits of queries, bytes, elements; times printed.

At 1,000 clusters in `make test`, where what grows with them passes the limits already; at 5,000 in
`make test-all`.

The demo is loaded once for all tests here; nothing of it is left behind.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from http import HTTPStatus
from time import process_time
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.sql.compiler import SQLCompiler
from django.template.base import Node
from django.test import Client
from django.urls.resolvers import URLResolver
from pytest_django import DjangoAssertNumQueries
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from fleetui.broker import UPDATES
from fleetui.task_queue import record_heartbeat
from placements.engine.checks import findings
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.models import Binding, Draft, Placement
from placements.services.checks import current_report
from placements.services.demo import load
from placements.services.loss import evaluation
from placements.services.placements import save_placement
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.worker import run_cluster_calls
from tests.api.test_size import check_lists_and_preview
from tests.database import forget_caches, restore_migrated_rows
from tests.effort import IS_FULL
from tests.load.deciding import StatementCounter
from tests.page_samples import MOST_QUERIES, sample_pages
from tests.rows import NOW, api_token, person, run_due

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.larger,
    pytest.mark.usefixtures("pages"),
    pytest.mark.xdist_group("page budgets"),  # so that one process alone loads the demo
]
LARGEST, SMALLER = "monitoring", "sessions"
SIZE = 5_000 if IS_FULL else 1_000
ROUNDS = 2 if IS_FULL else 1
AT_ONCE = {"applyMilliseconds": 0, "readySeconds": 0}
MOST_ELEMENTS, MOST_BYTES = 6_000, 300_000
LISTS = (
    "clusters",
    "placements",
    "rollouts",
    "resources",
    "activity",
    "staged-strategies",
)
MOST_QUERIES_OF_A_LIST = 12
POLLED = (
    "placement",
    "rollout",
    "rollout-events",
    "rollout-clusters",
    "rollout-plan",
    "staged-run",
)
MOST_BYTES_OF_A_POLL = 70_000
EDITED = ("storefront", "mobile-api", "feature-flags", "monitoring", "archive")
MOST_BYTES_OF_A_CHANGE = 60_000
MOST_OF_A_PAGE = {
    "/placements/": (1_400, 30, 12),
    "/clusters/": (850, 40, 12),
    f"/placements/{SMALLER}/": (1_700, 80, 20),
}
"""Template nodes, addresses and queries compiled again for a page; a list has 50 rows."""
OTHER_VIEWS = {
    "clusters": (
        "/clusters/?order=-placements",
        "/clusters/?order=-stale",
        "/clusters/?label=env:prod",
    ),
    "placement": (f"/placements/{SMALLER}/", "/placements/shelf/"),
    "placement-reschedule": ("/placements/storefront/reschedule/?moves=10",),
    "rollouts": ("/rollouts/?state=finished",),
    "rollout": (f"/rollouts/{LARGEST}/1/clusters/?from={SIZE // 2}",),
    "topology": ("/topology/?key=zone",),
    "what-if": ("/what-if/?label=env:prod",),
    "decision": ("{decision}?view=funnel", "{decision}?view=affinity"),
}
"""What else a page shows, by its address."""


class Elements(HTMLParser):
    """Counts the elements of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count = 0
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        """Count one."""
        del tag, attributes
        self.count += 1


@pytest.fixture(scope="module")
def pages(
    request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker
) -> Iterator[dict[str, str]]:
    """Load the demo, narrow its largest placement, begin every rollout; return the pages."""
    request.getfixturevalue("django_db_setup")
    request.getfixturevalue("collected_static")
    # This fixture is set up before those that do so for each test.
    forget_caches()
    with (
        django_db_blocker.unblock(),
        transaction.atomic(),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(load._DEMOS, SIZE, partial(load._large, SIZE, "A large"))
        restore_migrated_rows()
        load.load_demo(SIZE, by=None, now=NOW)
        MemberCluster.objects.filter(
            connection={"readySeconds": load.READY_SECONDS}
        ).update(connection=AT_ONCE)
        slow = MemberCluster.objects.filter(name__regex="[abc]$", connection=AT_ONCE)
        slow.update(connection={**AT_ONCE, "readySeconds": 3600})
        save_placement(_narrowed(LARGEST), by=None, now=NOW)
        run_due()
        cluster = (
            Binding.objects.filter(placement__name=LARGEST)
            .earliest("cluster_name")
            .cluster_name
        )
        ana = person("ana", "operator", "approver", "cluster-administrator")
        found = sample_pages(cluster=cluster, placement=LARGEST, by=ana, now=NOW)
        for _ in range(ROUNDS):
            _work()
        yield found
        transaction.set_rollback(True)


def _work() -> None:
    run_cluster_calls(now=NOW, threads=0, clock=lambda: NOW)
    sync_due_rollouts(now=NOW)


def _narrowed(name: str) -> dict[str, Any]:
    """Write the manifest of a placement that leaves the clusters of the lab out."""
    document = deepcopy(Placement.objects.get(name=name).document)
    term = {
        "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["lab"]}]
    }
    required = {"clusterSelectorTerms": [{"labelSelector": term}]}
    document["spec"]["policy"]["affinity"] = {
        "clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return document


@pytest.fixture
def operator() -> Client:
    """Return the browser of `ana`, who operates, approves and administers clusters."""
    client = Client()
    client.force_login(User.objects.get(username="ana"))
    record_heartbeat(
        [UPDATES], now=datetime.now(UTC)
    )  # silent workers take a page another query
    return client


def test_a_rollout_is_on_its_way_everywhere() -> None:
    largest = Placement.objects.get(name=LARGEST)
    phases = set(largest.bindings.values_list("phase", flat=True))

    assert largest.bindings.count() > 0.9 * SIZE
    assert {"applying", "settling", "available"} <= phases
    assert largest.rollouts.get().updates.count() > 0.9 * SIZE


def test_every_page_stays_small(operator: Client, pages: dict[str, str]) -> None:
    found = {}
    for name, address in _views(pages):
        most = MOST_QUERIES_OF_A_LIST if name in LISTS else MOST_QUERIES
        looked = Look.within(
            partial(operator.get, address), queries=most, size=MOST_BYTES
        )
        print(f"{looked} {name} {address}")
        if faults := looked.faults(queries=most, size=MOST_BYTES):
            found[address] = faults

    assert found == {}


@pytest.mark.parametrize("page", MOST_OF_A_PAGE)
def test_a_page_takes_few_nodes_addresses_and_compiled_queries(
    operator: Client, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    counts: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    operator.get(page)
    counted = {
        "render_annotated": Node,
        "_reverse_with_prefix": URLResolver,
        "as_sql": SQLCompiler,
    }
    for name, owner in counted.items():
        count(owner, name)
    response = operator.get(page)

    print(f"{page}: {dict(counts)}")
    assert len(response.context.get("rows", range(20))) >= 20
    most = dict(zip(counted, MOST_OF_A_PAGE[page], strict=True))
    assert {name: one for name, one in counts.items() if one > most[name]} == {}


def test_the_links_of_a_loss_evaluate_no_placement_again(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = operator.get("/what-if/")
    counted = Mock(wraps=evaluation.loss)
    monkeypatch.setattr(evaluation, "loss", counted)

    other = operator.get("/what-if/?variant=cordon&impact=moves")

    assert first.context["clusters"] == other.context["clusters"]
    assert counted.call_count == 0


def test_the_checks_take_few_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def counted(cycle: Cycle) -> Decision:
        runs.append(1)
        return schedule(cycle)

    monkeypatch.setattr(findings, "schedule", counted)
    report = current_report()
    left_out = len(runs) - len(report.placements)

    print(f"{left_out} runs for {len(report.placements)} placements")
    assert left_out <= 80
    assert "H02" in {finding.rule for _, finding in report.findings}


def test_what_is_polled_again_and_again_is_smaller(
    operator: Client, pages: dict[str, str]
) -> None:
    found = {}
    for name in POLLED:
        fetch = partial(operator.get, pages[name], headers={"HX-Request": "true"})
        looked = Look.within(fetch, queries=MOST_QUERIES, size=MOST_BYTES_OF_A_POLL)
        print(f"{looked} polled {name}")
        if faults := looked.faults(queries=MOST_QUERIES, size=MOST_BYTES_OF_A_POLL):
            found[name] = faults

    assert found == {}


def test_a_change_in_the_editor_is_answered_with_little(operator: Client) -> None:
    found = {}
    for name in EDITED:
        change = _change_of(name, operator)
        looked = Look.within(change, queries=MOST_QUERIES, size=MOST_BYTES_OF_A_CHANGE)
        print(f"{looked} a change of {name}")
        answer = change().content.decode()
        assert "selected" in answer or "placed" in answer
        if faults := looked.faults(queries=MOST_QUERIES, size=MOST_BYTES_OF_A_CHANGE):
            found[name] = faults

    assert found == {}


def test_lists_of_rest_run_few_queries_and_a_preview_is_small(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    reader = APIClient()
    reader.credentials(
        HTTP_AUTHORIZATION=f"Token {api_token(User.objects.get(username='ana'))}"
    )

    check_lists_and_preview(reader, SIZE, django_assert_max_num_queries)


@dataclass(frozen=True, slots=True)
class Look:
    """What an answer cost: milliseconds of the processor, queries, bytes, elements."""

    status: int
    milliseconds: float
    queries: int
    size: int
    elements: int

    @classmethod
    def at(cls, fetch: Callable[[], Any]) -> "Look":
        """Send one request and measure it."""
        counter = StatementCounter()
        began = process_time()
        with connection.execute_wrapper(counter):
            answer = fetch()
        took = (process_time() - began) * 1000
        elements = Elements(answer.content.decode()).count
        return cls(
            answer.status_code, took, counter.count, len(answer.content), elements
        )

    @classmethod
    def within(cls, fetch: Callable[[], Any], *, queries: int, size: int) -> "Look":
        """Measure one request, and a second where that exceeds the limits: some things are cached."""
        looked = cls.at(fetch)
        return cls.at(fetch) if looked.faults(queries=queries, size=size) else looked

    def __str__(self) -> str:
        """Write it as a line of a table."""
        counts = (
            f"{self.queries:3} queries {self.size:7,} bytes {self.elements:5,} elements"
        )
        return f"{self.milliseconds:7.1f} ms {counts}"

    def faults(self, *, queries: int, size: int) -> list[str]:
        """Return the limits that are exceeded."""
        held = {
            f"answers {self.status}": self.status == HTTPStatus.OK,
            f"{self.queries} queries, not {queries}": self.queries <= queries,
            f"{self.size} bytes, not {size}": self.size <= size,
            f"{self.elements} elements": self.elements <= MOST_ELEMENTS,
        }
        return [fault for fault, is_held in held.items() if not is_held]


def _views(pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    decision = pages["decision"].partition("?")[0]
    for name, address in pages.items():
        yield name, address
        for other in OTHER_VIEWS.get(name, ()):
            yield name, other.format(decision=decision)


def _change_of(name: str, operator: Client) -> Callable[[], Any]:
    """Begin to edit a placement; return what posts the next change."""
    page = operator.get(f"/placements/{name}/edit/").content.decode()
    fields = _fields_of(page)
    if Placement.objects.get(name=name).number_of_clusters:
        fields["spec.policy.numberOfClusters"] = "120"
    history = iter(range(2, 1_000))

    def change() -> Any:
        sent = {**fields, "spec.revisionHistoryLimit": str(next(history))}
        return operator.post(address, sent, headers={"HX-Request": "true"})

    address = f"/placements/{name}/edit/"
    change()
    address = f"/drafts/{Draft.objects.filter(placement__name=name).latest('pk').pk}/"
    return change


def _fields_of(page: str) -> dict[str, str]:
    form = page.partition('id="editing"')[2].partition("</form>")[0]
    form = re.sub(r'<input type="radio"(?![^>]* checked)[^>]*>', "", form)
    found = dict(re.findall(r'<input [^>]*name="([^"]*)"[^>]*value="([^"]*)"', form))
    for name, inner in re.findall(
        r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL
    ):
        found[name] = re.findall(r'<option value="([^"]*)" selected', inner)[0]
    return found
