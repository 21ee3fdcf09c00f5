"""Two hubs with the same names and different contents: no address of one shows what only the other has."""

import re
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass
from html import unescape

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve
from django.urls.exceptions import Resolver404
from rest_framework.test import APIClient

from clusters.hub_queries import across_hubs
from clusters.models import Hub, HubCredential, HubGrant, MemberCluster
from fleetui.access.models import TeamGrant
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import LOCAL_HUB, HubManager, ScopeError, in_hub
from placements.models import Problem, ProblemBook
from placements.services.overrides.operations import save_override
from placements.services.resources.operations import apply_resources
from tests.api.schema import generated_schema
from tests.database import forget_caches
from tests.live_hubs import live_hub, move_rows_to
from tests.page_samples import sample_pages
from tests.rows import (
    NOW,
    api_token,
    config_map,
    decided,
    joined,
    namespace,
    person,
    pick_n_spec,
)

pytestmark = pytest.mark.django_db
LINK = re.compile(r'(?:href|hx-get|action|data-[a-z]+)="(/[^"#]*)')
LISTS = (
    "clusters/membercluster",
    "placements/placement",
    "placements/resource",
    "placements/policysnapshot",
    "placements/resourcesnapshot",
    "placements/binding",
    "placements/decision",
    "placements/drain",
    "fleetui/event",
)

READ_OFTEN = (
    *(
        "overview",
        "clusters",
        "cluster",
        "topology",
        "placements",
        "placement",
        "decision",
    ),
    *("rollouts", "rollout", "activity", "what-if", "resources", "overrides"),
)


@dataclass(frozen=True)
class World:
    """A hub, the word that only its rows contain, and the addresses of its pages without the mount."""

    mount: str
    word: str
    pages: dict[str, str]


def fill(word: str, ana: User) -> dict[str, str]:
    """Make one of everything on the local hub, with the word wherever no name has to be; return the pages."""
    settings = config_map("settings", data={word: word})
    apply_resources([namespace("shop", note=word), settings], by=ana, now=NOW)
    for name, region in (
        ("bravelion", "east"),
        ("jumpingcat", "west"),
        ("nimblefox", "west"),
    ):
        joined(name, region=region, note=word)
    decided(
        "web",
        pick_n_spec(2, tolerations=[{"key": word, "operator": "Exists"}]),
        description=word,
    )
    override = {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ResourceOverride",
        "metadata": {"name": "tune", "namespace": "shop"},
        "spec": {
            "resourceSelectors": [
                {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
            ],
            "policy": {
                "overrideRules": [
                    {
                        "jsonPatchOverrides": [
                            {"op": "add", "path": "/data/more", "value": word}
                        ]
                    }
                ]
            },
        },
    }
    save_override(override, by=ana, now=NOW)
    return sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)


@pytest.fixture
def ana() -> User:
    """Return a person with every role."""
    user = person("ana", "viewer", "operator", "approver", "cluster-administrator")
    user.is_superuser = True
    user.save()
    return user


@pytest.fixture
def visitor(ana: User) -> Client:
    """Return the browser of ana."""
    visitor = Client()
    visitor.force_login(ana)
    return visitor


@pytest.fixture
def worlds(ana: User) -> tuple[World, World]:
    """Return the local hub and a live one."""
    live = live_hub("paris")
    of_live = fill("zebrafinch", ana)
    move_rows_to(live)
    return World("", "amberjack", fill("amberjack", ana)), World(
        "/hubs/paris", "zebrafinch", of_live
    )


def crawled(visitor: Client, world: World) -> Iterator[tuple[str, str]]:
    """Yield the address and text of one page of each kind, from the samples and the admin along all links."""
    waiting = [f"{world.mount}{address}" for address in world.pages.values()]
    waiting += [f"{world.mount}/admin/{name}/" for name in ("", *LISTS)]
    visited = set()
    while waiting:
        address = waiting.pop(0)
        path, _, query = address.removeprefix(world.mount).partition("?")
        try:
            kind = resolve(path)
        except Resolver404:  # an address of another release, or a file
            continue
        key = (
            kind.view_name,
            tuple(sorted(part.partition("=")[0] for part in query.split("&"))),
        )
        if key in visited or path.startswith(
            ("/logout/", "/static/", "/help/", "/api/docs")
        ):
            continue
        visited.add(key)
        answer = visitor.get(address)
        text = answer.getvalue().decode()
        yield address, text
        links = (
            {unescape(one) for one in LINK.findall(text)}
            if answer.status_code == 200
            else set()
        )
        waiting += sorted(link for link in links if link.startswith(f"{world.mount}/"))


def test_no_page_shows_what_only_another_hub_has(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    for world, other in (worlds, worlds[::-1]):
        text_by_address = dict(crawled(visitor, world))

        assert [
            address for address, text in text_by_address.items() if other.word in text
        ] == []
        assert sum(world.word in text for text in text_by_address.values()) > 30
        assert len(text_by_address) > 120


@pytest.mark.nightly
def test_a_page_of_a_live_hub_costs_two_queries_more_at_most_and_other_hubs_cost_none(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    """`rules/live-hub.md#costs`: the query for the hub and that for its line are the two."""

    def queries(world: World, name: str) -> int:
        address = f"{world.mount}{world.pages[name]}"
        visitor.get(address)  # compiles templates
        forget_caches()
        with CaptureQueriesContext(connection) as captured:
            answer = visitor.get(address)
        assert answer.status_code == 200, address
        return len(captured)

    few = {
        (world.mount, name): queries(world, name)
        for world in worlds
        for name in READ_OFTEN
    }
    for number in range(8):
        live_hub(f"other-{number}")
    many = {
        (world.mount, name): queries(world, name)
        for world in worlds
        for name in READ_OFTEN
    }

    local, live = (world.mount for world in worlds)
    assert {
        name: few[live, name] - few[local, name]
        for name in READ_OFTEN
        if few[live, name] > few[local, name] + 2
    } == {}
    assert many == few


def test_every_page_of_a_live_hub_has_addresses_of_that_hub_only(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    live, live_id = worlds[1], Hub.objects.get(name="paris").pk
    shared = re.compile(
        r"/(static|inbox|help|theme|rows|keys|login|logout|users|tokens|access-log|api/docs|api/schema)\b|/hubs/$"
    )
    for address in live.pages.values():
        # What a hub rolls out has no plan of this console.
        if (
            shared.match(address)
            or "/compare/" in address
            or re.match("/rollouts/.*/plan/", address)
        ):
            continue
        answer = visitor.get(f"{live.mount}{address}", follow=True)
        links = {unescape(one) for one in LINK.findall(answer.content.decode())}
        view = resolve(address.partition("?")[0])
        with in_hub(live_id):
            is_refused = (
                current_backend().refusal(view.view_name, is_form=False) is not None
            )

        assert answer.status_code == (409 if is_refused else 200), address
        assert [
            link
            for link in links
            if not link.startswith(f"{live.mount}/") and not shared.match(link)
        ] == [], address


@pytest.mark.nightly
def test_no_number_or_id_of_another_hub_opens_anything(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    local, live = worlds
    numbered = (
        "event",
        "draft",
        "draft-review",
        "decision",
        "decision-cluster",
        "decision-semantics",
    )
    for name in numbered:
        assert local.pages[name] != live.pages[name]
        for mount, address in (
            (local.mount, live.pages[name]),
            (live.mount, local.pages[name]),
        ):
            assert visitor.get(f"{mount}{address}").status_code == 404, (mount, address)
    prefix = live.pages["decision"].split("/")[2]
    assert visitor.get(f"/api/v1/decisions/{prefix}").status_code == 404
    assert visitor.get(f"/api/v1/decisions/{prefix}.csv").status_code == 404
    assert visitor.get(f"{live.mount}/api/v1/decisions/{prefix}").status_code == 200


def test_no_address_of_the_api_shows_what_only_another_hub_has(
    ana: User, worlds: tuple[World, World]
) -> None:
    names = {
        "clusters": "bravelion",
        "placements": "web",
        "rollouts": "web",
        "decisions": "bravelion",
        "staged-runs": "one",
        "staged-strategies": "careful",
    }
    caller = APIClient()
    caller.force_login(ana)
    for world, other in (worlds, worlds[::-1]):
        keys = {
            "decision": world.pages["decision"].split("/")[2],
            "cluster": "bravelion",
            "group": "core",
            "kind": "ConfigMap",
            "namespace": "shop",
            "before": "s0",
            "after": "s0",
        }
        text_by_address = {}
        for path, methods in generated_schema()["paths"].items():
            if "get" not in methods or path.startswith("/api/v1/hubs"):
                continue
            name = (
                "settings"
                if "/resources/" in path
                else names.get(path.split("/")[3], "tune")
            )
            numbers = {"events": world.pages["event"]}
            at = numbers.get(
                path.split("/")[3], "0" if "snapshots" in path else "1"
            ).strip("/")
            address = path.format(**keys, name=name, number=at.rpartition("/")[2])
            text_by_address[address] = (
                caller.get(f"{world.mount}{address}").getvalue().decode()
            )

        assert [
            address for address, text in text_by_address.items() if other.word in text
        ] == []
        assert sum(world.word in text for text in text_by_address.values()) > 8


@pytest.mark.nightly
def test_search_finds_only_what_the_hub_has(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    local, live = worlds
    with in_hub(live_pk()):
        MemberCluster.objects.filter(name="bravelion").update(name="quietowl")

    assert (
        "/clusters/quietowl/" not in visitor.get("/search/?q=quietowl").content.decode()
    )
    assert (
        visitor.get(f"{live.mount}/search/?q=quietowl")["Location"]
        == f"{live.mount}/clusters/quietowl/"
    )
    assert visitor.get("/search/?q=bravelion")["Location"] == local.pages["cluster"]


def live_pk() -> int:
    """Return the key of the live hub."""
    return Hub.objects.exclude(pk=LOCAL_HUB).get().pk


def test_a_fragment_of_one_hub_is_never_that_of_the_other(
    visitor: Client, worlds: tuple[World, World]
) -> None:
    fragments = [
        visitor.get(f"{world.mount}/", headers={"HX-Request": "true"}).content.decode()
        for world in worlds
    ]

    assert 'href="/clusters/' in fragments[0]
    assert 'href="/hubs/paris/' not in fragments[0]
    assert 'href="/hubs/paris/' in fragments[1]


@pytest.mark.nightly
def test_entity_tags_of_two_hubs_differ(ana: User, worlds: tuple[World, World]) -> None:
    caller = APIClient()
    caller.force_login(ana)
    tags = [
        caller.get(f"{world.mount}/api/v1/resources/core/Namespace/-/shop")["ETag"]
        for world in worlds
    ]

    assert tags[0].startswith('"1')
    assert tags[1].startswith('"1-')
    assert tags[0] != tags[1]


@pytest.mark.parametrize("name", ["rome", "local", "new"])
def test_an_unknown_hub_is_not_found(visitor: Client, name: str) -> None:
    assert visitor.get(f"/hubs/{name}/clusters/").status_code == 404


def test_a_removed_hub_is_not_found(visitor: Client) -> None:
    live_hub("paris", state="removed", removed_at=NOW)

    assert visitor.get("/hubs/paris/clusters/").status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "/help/glossary/",
        "/login/?next=/hubs/paris/clusters/",
        "/theme/",
        "/api/v1/hubs",
        "/admin/auth/user/",
    ],
)
def test_addresses_without_a_hub_redirect_to_themselves(
    visitor: Client, address: str
) -> None:
    live_hub("paris")
    answers = [
        visitor.get(f"/hubs/paris{address}"),
        visitor.post(f"/hubs/paris{address}"),
    ]

    assert [(answer.status_code, answer["Location"]) for answer in answers] == [
        (308, address)
    ] * 2


def test_a_user_without_a_role_on_a_hub_finds_nothing_there(client: Client) -> None:
    paris = live_hub("paris")
    live_hub("rome")
    HubGrant.objects.create(
        hub=paris, group=Group.objects.create(name="team"), role="viewer"
    )
    bob, vera = person("bob", "team"), person("vera", "viewer")
    statuses = {}
    for user in (bob, vera):
        client.force_login(user)
        caller = APIClient()
        caller.force_authenticate(user)
        for hub in ("paris", "rome"):
            address = f"/hubs/{hub}/clusters/"
            rest = caller.get(f"/hubs/{hub}/api/v1/clusters")
            statuses[user.username, hub] = (
                client.get(address).status_code,
                rest.status_code,
            )

    assert statuses == {
        ("bob", "paris"): (200, 200),
        ("bob", "rome"): (404, 404),
        ("vera", "paris"): (404, 404),
        ("vera", "rome"): (200, 200),
    }


def test_an_anonymous_visitor_is_redirected_to_the_login_and_back(
    client: Client,
) -> None:
    live_hub("paris")
    answer = client.get("/hubs/paris/clusters/", follow=True)

    assert answer.redirect_chain[-1][0] == "/login/?next=%2Fhubs%2Fparis%2Fclusters%2F"


@pytest.mark.nightly
def test_what_the_hub_decides_is_refused_with_its_own_way(
    visitor: Client, ana: User, worlds: tuple[World, World]
) -> None:
    caller = APIClient()
    caller.force_login(ana)
    page = visitor.post("/hubs/paris/placements/web/pause/")
    rest = caller.post("/hubs/paris/api/v1/placements/web/pause")

    assert (page.status_code, rest.status_code) == (409, 409)
    assert "The live hub decides this." in page.content.decode()
    assert rest.json()["type"] == "urn:fleetui:problem:hub-decides"
    assert worlds


def test_every_table_of_rows_is_scoped_and_raises_without_a_hub() -> None:
    scoped = [
        model
        for model in apps.get_models()
        if model not in (HubGrant, HubCredential, TeamGrant, Problem, ProblemBook)
        and any(field.name == "hub" for field in model._meta.concrete_fields)
    ]

    assert len(scoped) > 30
    for model in scoped:
        assert isinstance(model._default_manager, HubManager), model
        for query in (
            model._default_manager.all,
            model._default_manager.exists,
            model._default_manager.first,
        ):
            with pytest.raises(ScopeError):
                Context().run(query)


def test_every_table_of_rows_has_a_hub() -> None:
    shared = {
        "FleetRecord",
        "DecisionRecord",
    }  # content-addressed: found through the decisions of a hub
    # Administrators manage them for all hubs together; a problem names its hub.
    shared |= {"NotificationChannel", "NotificationRule", "NotificationDelivery"}
    tables = [
        model
        for app in ("clusters", "placements")
        for model in apps.get_app_config(app).get_models()
    ]
    without = {
        table.__name__
        for table in tables
        if all(field.name != "hub" for field in table._meta.concrete_fields)
    }

    assert without == {"Hub"} | shared


@pytest.mark.nightly
def test_across_hubs_finds_the_rows_of_all(worlds: tuple[World, World]) -> None:
    with across_hubs():
        rows = MemberCluster.objects.filter(name="bravelion")

    assert (rows.count(), MemberCluster.objects.filter(name="bravelion").count()) == (
        2,
        1,
    )
    assert worlds


@pytest.mark.nightly
def test_without_a_user_a_hub_that_exists_is_like_one_that_does_not(
    client: Client, ana: User
) -> None:
    live_hub("paris")
    holder = APIClient(HTTP_AUTHORIZATION=f"Token {api_token(ana)}")
    paths = (
        "",
        "clusters/",
        "placements/web/",
        "nothing/here/",
        "admin/",
        "search/?q=a",
        "hub-line/",
    )
    for path in (*paths, "about/"):
        answers = [client.get(f"/hubs/{name}/{path}") for name in ("paris", "london")]
        responses = [
            (
                answer.status_code,
                answer.get("Location", "").replace(name, "NAME"),
            )
            for answer, name in zip(answers, ("paris", "london"), strict=True)
        ]
        assert responses[0] == responses[1], path
    for path in ("clusters", "placements/web", "overview", "nothing"):
        for send in (client.get, client.put, client.delete):
            answers = [
                send(f"/hubs/{name}/api/v1/{path}") for name in ("paris", "london")
            ]
            assert answers[0].status_code == answers[1].status_code, path
            assert answers[0].content == answers[1].content.replace(
                b"london", b"paris"
            ), path
    assert holder.get("/hubs/paris/api/v1/clusters").status_code == 200
    assert holder.get("/hubs/london/api/v1/clusters").status_code == 404
    assert holder.delete("/hubs/london/api/v1/placements/web").status_code == 404
    client.force_login(ana)
    assert client.get("/hubs/london/clusters/").status_code == 404
