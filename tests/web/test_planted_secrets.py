"""Planted values of Secrets are found by no role without `view_secrets`, at no door, and in no file."""

import logging
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from schemathesis.core.result import Ok

from clusters.models import Hub, MirroredObject
from clusters.operations.heartbeat import observe
from fleetui.access.models import AccessEvent
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.encryption import HiddenValueStored
from fleetui.hub_scope import in_hub
from fleetui.models import Event
from fleetui.permissions import may_change
from placements import urls
from placements.hubs.trimming import unpack
from placements.models import Draft, Override, Placement, Resource, ResourceSnapshot
from placements.services.editor.operations import start_draft
from placements.services.editor.validation import text_for
from placements.services.resources.operations import apply_resources
from placements.web.activity import resource_url
from tests.api.test_schema import filled_hub, on_what_is_there, read_schema
from tests.commands import call_command
from tests.database import database_dump
from tests.effort import IS_FULL
from tests.page_samples import (
    HUB_PAGES,
    NO_PAGE,
    NOTIFICATION_PAGES,
    SAMPLES,
    USER_PAGES,
    sample_pages,
)
from tests.rows import (
    NOW,
    api_token,
    config_map,
    decided,
    namespace,
    person,
    pick_n_spec,
    run_due,
    simulated,
)
from tests.web.planted import drafted, found_in, plant, plant_live_hub, secret
from tests.web.test_teams import grant

pytestmark = pytest.mark.django_db
ROLES = ("viewer", "approver", "operator", "cluster-administrator")
EDIT_FORM = "/resources/apply/?from=/Secret/shop/login"
"""Shows values to those who may change the Secret, and writes the access log."""
MORE_PAGES = {
    "placement-yaml": "/placements/web/yaml/",
    "comparison-select": "/placements/web/compare/?before=s0&after=s1",
    "rollout-latest": "/rollouts/web/",
    "map-panel": "/topology/panel/",
    "draft-completions": "/drafts/completions/",
    "hub-line": "/hub-line/",
    "metrics": "/metrics",
    "access-log-export": "/access-log/export/",
}
"""Addresses to be read that are no pages: files, fragments and redirects."""
REST_ALSO = (
    "/api/v1/placements/web/compare/s0..s1",
    "/api/v1/resources/core/Secret/shop/login",
    "/api/v1/resources/placement.kubernetes-fleet.io/ResourceEnvelope/shop/bundle",
    "/api/v1/overrides/ResourceOverride/shop/login",
    "/api/v1/overrides/ClusterResourceOverride/-/tier",
    "/api/v1/resources/placement.kubernetes-fleet.io/ClusterResourceEnvelope/-/cluster-bundle",
    "/api/v1/events?limit=500",
)
LIVE_HUB = "rome"
MIRRORED = (
    "placement.kubernetes-fleet.io/ClusterResourceOverride/-/tier",
    "placement.kubernetes-fleet.io/ResourceOverride/shop/login",
    "placement.kubernetes-fleet.io/ClusterResourceOverrideSnapshot/-/tier-0",
    "placement.kubernetes-fleet.io/ResourceOverrideSnapshot/shop/login-0",
    "placement.kubernetes-fleet.io/ClusterResourcePlacement/-/web",
    "placement.kubernetes-fleet.io/ClusterResourceBinding/-/web-paris-0a1b2c3d",
    "placement.kubernetes-fleet.io/ClusterResourceSnapshot/-/web-0-snapshot",
    "-/Namespace/-/shop",
)
"""Objects of the live hub with values, for `GET hubs/NAME/objects/…`."""


def readers() -> Iterator[User]:
    """Yield a viewer and one with everything but that permission; by `make test-all` also all others."""
    for role in ROLES if IS_FULL else ROLES[:1]:
        yield person(f"reader-{role}", role)
    if IS_FULL:
        of_team = person("reader-of-team")
        grant(of_team, "operator", "approver", key="of", value="second")
        yield of_team
    almost = person("reader-almost", *ROLES)
    almost.is_staff = True
    almost.save()
    almost.user_permissions.set(Permission.objects.exclude(codename="view_secrets"))
    yield almost


def read_text(answer: Any) -> str:
    """Return a whole response, its headers too."""
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return f"{answer.headers} {body.decode(errors='replace')}"


def rest_addresses(hub: dict[str, str]) -> list[str]:
    """Return the address of every operation that reads, on what is there, and of what is planted."""
    addresses = list(REST_ALSO)
    for found in read_schema().get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.method.upper() == "GET":
            addresses.append(on_what_is_there(operation, hub).formatted_path)
    for snapshot in ResourceSnapshot.objects.select_related("placement"):
        place = f"/api/v1/placements/{snapshot.placement.full_name}/resource-snapshots/{snapshot.number}"
        addresses += [f"{place}?part={part.position}" for part in snapshot.parts.all()]
    addresses += [
        f"/api/v1/events/{pk}" for pk in Event.objects.values_list("pk", flat=True)
    ]
    return addresses


def addresses_of_live_hub(hub: dict[str, str]) -> list[str]:
    """Return what of the live hub can be read: every operation, and each object as it is mirrored."""
    there = hub | {"name": "paris", "cluster": "paris"}
    found = [f"/api/v1/hubs/{LIVE_HUB}/objects/{one}" for one in MIRRORED]
    found += [
        f"/api/v1/hubs/{LIVE_HUB}/{part}"
        for part in ("streams", "unresolved", "writes")
    ]
    for get_all_operation in read_schema().get_all_operations():
        assert isinstance(get_all_operation, Ok)
        operation = get_all_operation.ok()
        if operation.method.upper() == "GET" and "/hubs/" not in operation.path:
            found.append(
                f"/hubs/{LIVE_HUB}{on_what_is_there(operation, there).formatted_path}"
            )
    found.append(f"/hubs/{LIVE_HUB}/api/v1/overrides/ResourceOverride/shop/login")
    with in_hub(Hub.objects.get(name=LIVE_HUB).pk):
        found += [
            f"/hubs/{LIVE_HUB}/api/v1/events/{pk}"
            for pk in Event.objects.values_list("pk", flat=True)
        ]
    return found


def test_no_value_of_a_live_hub_is_mirrored_or_shown() -> None:
    hub = filled_hub()
    plant_live_hub(LIVE_HUB)
    addresses, user = addresses_of_live_hub(hub), person("vera", "viewer")
    headers, client = {"Authorization": f"Token {api_token(user)}"}, Client()
    client.force_login(user)
    with in_hub(Hub.objects.get(name=LIVE_HUB).pk):
        mirrored = {
            mirrored_object.kind: unpack(bytes(mirrored_object.manifest))
            for mirrored_object in MirroredObject.objects.all()
        }

    answers = {address: Client().get(address, headers=headers) for address in addresses}
    pages = {
        page: client.get(f"/hubs/{LIVE_HUB}{page}", follow=True)
        for page in pages_of_live_hub()
    }

    assert len(mirrored) > 9
    assert {
        kind for kind, content in mirrored.items() if found_in(repr(content))
    } == set()
    assert [answers[address].status_code for address in addresses[: len(MIRRORED)]] == [
        200
    ] * len(MIRRORED)
    assert "(hidden)" in read_text(answers[addresses[0]])
    assert (
        len([answer for answer in answers.values() if answer.status_code == 200]) > 50
    )
    assert len([page for page in pages.values() if page.status_code == 200]) > 40
    assert {
        one for one, answer in (answers | pages).items() if found_in(read_text(answer))
    } == set()
    assert found_in(database_dump()) == set()


def pages_of_live_hub() -> list[str]:
    """Return the addresses of the pages of a live hub, of what is there and of what is not."""
    things = dict.fromkeys(("budget", "connected", "decision", "draft"), 1)
    things |= dict.fromkeys(("event", "eviction", "token"), 1)
    there = {
        **things,
        "placement": "web",
        "cluster": "paris",
        "selected": "paris",
        "resource": "/resources/",
    }
    with in_hub(Hub.objects.get(name=LIVE_HUB).pk):
        there["event"] = Event.objects.latest("pk").pk if Event.objects.exists() else 1
    overrides = [
        "/overrides/ClusterResourceOverride/_/tier/",
        "/overrides/ResourceOverride/shop/login/",
    ]
    return [
        *(sample.format(**there) for sample in SAMPLES.values()),
        *MORE_PAGES.values(),
        *overrides,
    ]


@pytest.mark.larger
def test_no_operation_shows_a_value(subtests: pytest.Subtests) -> None:
    hub = filled_hub()
    Placement.objects.filter(full_name="web").update(
        is_stopped=False, pinned_snapshot=None
    )
    plant(owner=person("owner", *ROLES), now=NOW, of_shop="tier")
    addresses = rest_addresses(hub)
    assert ResourceSnapshot.objects.filter(placement__full_name="web").count() > 2

    for user in readers():
        headers = {"Authorization": f"Token {api_token(user)}"}
        with subtests.test(user.username):
            answers = {
                address: Client().get(address, headers=headers) for address in addresses
            }
            assert (
                len(
                    [answer for answer in answers.values() if answer.status_code == 200]
                )
                > 100
            )
            assert answers[REST_ALSO[1]].json()["data"]["password"] == "(hidden)"
            assert {
                one for one, answer in answers.items() if found_in(read_text(answer))
            } == set()
            yaml = {**headers, "Accept": "application/yaml"}
            texts = {
                one: read_text(Client().get(one, headers=yaml)) for one in REST_ALSO
            }
            assert {one for one, text in texts.items() if found_in(text)} == set()

    # The same doors show them to those who may see them, and write that down.
    user = person("sees", "viewer")
    user.user_permissions.add(Permission.objects.get(codename="view_secrets"))
    headers = {"Authorization": f"Token {api_token(user)}"}
    shown = {
        address
        for address in addresses
        if found_in(read_text(Client().get(address, headers=headers)))
    }
    assert set(REST_ALSO[1:6]) < shown
    assert any("/resource-snapshots/" in one for one in shown)
    lines = AccessEvent.objects.filter(verb="secret values read", actor_name="sees")
    assert lines.filter(subject="Secret shop/login").exists()
    assert lines.filter(subject__startswith="web-").exists()


def page_world(owner: User) -> dict[str, str]:
    """Fill a hub with one of everything and with planted values; return the addresses of its pages."""
    apply_world()
    own = plant(owner=owner, now=NOW)
    pages = (
        sample_pages(cluster="bravelion", placement="web", by=owner, now=NOW)
        | MORE_PAGES
    )
    for row in Resource.objects.all():
        pages |= {
            f"resource of {row}": resource_url(row),
            f"delete {row}": f"{resource_url(row)}delete/",
        }
    for override in Override.objects.all():
        place = (
            f"/overrides/{override.kind}/{override.namespace or '_'}/{override.name}/"
        )
        pages[f"override {override}"] = place
    pages |= {
        f"event {pk}": f"/activity/{pk}/"
        for pk in Event.objects.values_list("pk", flat=True)
    }
    pages |= {one: one for one in own}
    latest = (
        ResourceSnapshot.objects.filter(placement__full_name="web")
        .latest("number")
        .number
    )
    pages |= {
        f"s{number}": f"/placements/web/compare/s0..s{number}/"
        for number in range(latest + 1)
    }
    pages |= {
        f"{tab}": f"/placements/web/clusters/{name}/"
        for tab, name in enumerate(("jumpingcat", "nimblefox"))
    }
    return pages


def apply_world() -> None:
    apply_resources([namespace("shop"), config_map("settings")], by=None, now=NOW)
    for name, region in (
        ("bravelion", "east"),
        ("jumpingcat", "west"),
        ("nimblefox", "west"),
    ):
        simulated(name, region=region)
    observe(now=NOW)
    decided("web", pick_n_spec(3))
    run_due()


def admin_addresses() -> list[str]:
    """Return the list, and the page and the history of each row, of every model that the admin has."""
    found = ["/admin/"]
    for model in admin.site._registry:
        place = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        rows = model._base_manager.order_by("-pk").values_list("pk", flat=True)[
            : 40 if IS_FULL else 8
        ]
        found += [
            place,
            *(f"{place}{pk}/{page}/" for pk in rows for page in ("change", "history")),
        ]
    return found


def read_as(user: User) -> tuple[dict[str, str], ...]:
    """Return the headers of whole pages and of fragments; `make test` reads one of them as each user.

    Whole pages as a viewer are those of `test_secret_values.py`.
    """
    pages: dict[str, str] = {}
    fragments = {"HX-Request": "true"}
    if IS_FULL:
        return pages, fragments
    return (fragments,) if user.username == "reader-viewer" else (pages,)


@pytest.mark.larger
@pytest.mark.usefixtures("collected_static")
def test_no_page_shows_a_value(subtests: pytest.Subtests) -> None:
    owner = person("owner", *ROLES)
    pages = page_world(owner)
    everything = {*SAMPLES, *HUB_PAGES, *USER_PAGES, *NOTIFICATION_PAGES, *NO_PAGE}
    assert {pattern.name for pattern in urls.urlpatterns} - {None} <= everything
    addresses = list(dict.fromkeys([*pages.values(), *admin_addresses()]))

    for user in readers():
        client = Client()
        client.force_login(user)
        for headers in read_as(user):
            with subtests.test(user.username, headers=headers):
                answers = {
                    address: client.get(address, headers=headers, follow=not headers)
                    for address in addresses
                }
                assert (
                    len(
                        [
                            answer
                            for answer in answers.values()
                            if answer.status_code == 200
                        ]
                    )
                    > 100
                )
                assert {
                    one
                    for one, answer in answers.items()
                    if found_in(read_text(answer))
                } == set()
        with subtests.test(user.username, page="edit form"):
            is_shown = bool(found_in(read_text(client.get(EDIT_FORM))))
            assert is_shown is may_change(user, {"of": "second"})


def test_others_read_a_draft_without_values_and_its_owner_has_all_of_it(
    web: Placement,
) -> None:
    owner, texts = person("owner", "operator"), drafted(web.document)
    rows = [start_draft(text, placement=None, by=owner, now=NOW) for text in texts]

    for row, text in zip(rows, texts, strict=True):
        read = Draft.objects.get(pk=row.pk)
        assert (read.text, text_for(read, owner)) == ("(hidden)", text)
        shown = text_for(read, person(f"other-{row.pk}", "operator"))
        assert "(hidden)" in shown
        assert found_in(shown) == set()
    plain = start_draft(dump_yaml(web.document), placement=web, by=owner, now=NOW)
    assert text_for(
        Draft.objects.get(pk=plain.pk), person("vera", "viewer")
    ) == dump_yaml(web.document)


@pytest.mark.django_db(transaction=True)
def test_no_file_no_message_and_no_line_of_a_log_has_a_value(
    tmp_path: Path, woken: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    page_world(person("owner", *ROLES))

    assert found_in(caplog.text) == set()
    assert woken
    assert found_in(repr(woken)) == set()
    assert found_in(database_dump()) == set()
    if connection.vendor == "sqlite":
        backup = tmp_path / "fleet.sqlite3"
        call_command("backup", str(backup))
        assert found_in(backup.read_bytes()) == set()
        assert found_in(connection.connection.serialize()) == set()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="of SQLite")
def test_sqlite_overwrites_what_is_deleted() -> None:
    line = AccessEvent.objects.create(
        at=NOW, actor_name="planted-and-deleted", verb="logged in", details={}
    )
    assert b"planted-and-deleted" in connection.connection.serialize()

    line.delete()

    assert b"planted-and-deleted" not in connection.connection.serialize()


def test_a_hidden_value_never_replaces_the_stored_one(web: Placement) -> None:  # noqa: ARG001 -- its namespace
    apply_resources([secret("kept")], by=None, now=NOW)
    row = Resource.objects.get(kind="Secret")
    plain = plain_manifest(row.content)
    assert found_in(repr(row.content)) == set()
    assert plain["Data"] == {"password": "planted-kept-unknown"}

    row.save()  # as it was read: the values stay
    Resource.objects.bulk_update([row], ["content"])
    Resource.objects.filter(pk=row.pk).update(content=deepcopy(row.content))
    assert plain_manifest(Resource.objects.get(pk=row.pk).content) == plain

    row.content["metadata"]["labels"] = {"changed": "yes"}
    copies = (
        row.content,
        dict(row.content),
        {**row.content, "type": "other"},
        [dict(row.content)],
    )
    for content in copies:
        with pytest.raises(HiddenValueStored), transaction.atomic():
            Resource.objects.filter(pk=row.pk).update(content=content)
    assert plain_manifest(Resource.objects.get(pk=row.pk).content) == plain
