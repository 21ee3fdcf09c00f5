"""One event in full, and what is never shown of a Secret."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from clusters.operations.edit import change_labels
from fleetui.audit import AuditEvent, record
from fleetui.models import Event
from placements.services.overrides.operations import delete_override, save_override
from placements.services.resources.operations import apply_resources, delete_resource
from placements.services.results import stored_document
from placements.templatetags.fleet import plain
from tests.rows import NOW, joined, namespace, person
from tests.services.rollouts.overrides import for_resource, rule
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]
MARKS = re.compile("</?(ins|del)>")
PASSWORD, LATER = "aHVzaA==", "bGF0ZXI="
COPY = "kubectl.kubernetes.io/last-applied-configuration"


def secret(password: str) -> dict[str, Any]:
    """Write a Secret with a password and a user that never changes."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "api-key",
            "namespace": "shop",
            "annotations": {COPY: f"{{{password}}}"},
        },
        "data": {"password": password, "user": "YW5h"},
        "stringData": {"plain": password},
    }


@pytest.fixture
def changed() -> Event:
    """Apply a Secret and another one over it; return the last event."""
    apply_resources([namespace("shop"), secret(PASSWORD)], by=None, now=NOW)
    apply_resources([secret(LATER)], by=None, now=NOW)
    return Event.objects.latest("pk")


def test_an_event_shows_every_line_of_before_and_after(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a", region="west", tier="one")
    change_labels(["a"], put={"region": "north"}, by=None, now=NOW)

    page = text_of(viewer, f"/activity/{Event.objects.latest('pk').pk}/")

    before = '<td class="sign">−</td><td class="went"><code>    region: <del>west</del></code></td>'
    after = '<td class="sign">+</td><td class="came"><code>    region: <ins>north</ins></code></td>'
    assert before + after in page
    assert '<td class="sign"></td><td><code>    tier: one</code>' in page
    assert "by system" in page


def test_what_came_is_shown_whole(viewer: Client, text_of: Fetch) -> None:
    joined("a", region="west")

    page = text_of(viewer, f"/activity/{Event.objects.get().pk}/")

    assert '<h2 id="side-1">After</h2>' in page
    assert "    region: west" in page


def test_there_is_no_page_of_what_never_happened(viewer: Client) -> None:
    assert viewer.get("/activity/12345/").status_code == 404


def test_events_never_hold_what_a_secret_holds(changed: Event) -> None:
    delete_resource(("", "Secret", "shop", "api-key"), by=None, now=NOW)

    held = str(list(Event.objects.values_list("before", "after")))

    assert changed.after
    assert changed.before
    assert changed.after["data"] == {
        "password": "(hidden, changed)",
        "user": "(hidden)",
    }
    assert changed.before["data"] == {"password": "(hidden)", "user": "(hidden)"}
    assert PASSWORD not in held
    assert LATER not in held


@pytest.mark.nightly
@pytest.mark.parametrize(
    "address", ["/activity/", "/activity/{event}/", "/resources/_/Secret/shop/api-key/"]
)
def test_no_page_shows_what_a_secret_holds(
    viewer: Client, text_of: Fetch, changed: Event, address: str
) -> None:
    page = MARKS.sub("", text_of(viewer, address.format(event=changed.pk)))

    assert "(hidden, changed)" in page or (
        "(hidden)" in page and "/resources/" in address
    )
    assert PASSWORD not in page
    assert LATER not in page


@pytest.fixture
def reader_of_secrets() -> Client:
    """Return the browser of a viewer who may view the values of Secrets."""
    user = person("sam", "viewer")
    user.user_permissions.add(Permission.objects.get(codename="view_secrets"))
    client = Client()
    client.force_login(user)
    return client


def test_the_object_itself_stays_complete_over_rest(
    reader_of_secrets: Client, changed: Event
) -> None:
    answer = reader_of_secrets.get("/api/v1/resources/core/Secret/shop/api-key")

    assert changed.kind == "resource"
    assert answer.json()["data"] == {"password": LATER, "user": "YW5h"}


@pytest.mark.nightly
def test_finds_a_person_by_a_part_of_the_name_in_any_case(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a")
    change_labels(
        ["a"], put={"region": "north"}, by=person("Anna.Lind", "operator"), now=NOW
    )

    for part in ("anna", "LIND", "a.l"):
        page = text_of(viewer, f"/activity/?by={part}")

        assert "Anna.Lind" in page
        assert '<td class="nowrap inline">system</td>' not in page
    assert "No events match" in text_of(viewer, "/activity/?by=otto")


SECRET = {"group": "", "version": "v1", "kind": "Secret", "name": "api-key"}


def overriding(password: str) -> dict[str, Any]:
    """Write an override that gives the Secret a password of its own on some clusters."""
    patch = {"op": "replace", "path": "/data/password", "value": password}
    return for_resource("api-key", rule(patch, env="canary"), of=SECRET)


@pytest.fixture
def overridden() -> Event:
    """Override a Secret, once and again; return the last event."""
    save_override(overriding(PASSWORD), by=None, now=NOW)
    save_override(overriding(LATER), by=None, now=NOW)
    return Event.objects.latest("pk")


@pytest.mark.usefixtures("overridden")
def test_events_never_hold_what_an_override_puts_into_a_secret() -> None:
    delete_override("ResourceOverride", "shop", "api-key", by=None, now=NOW)

    held = str(
        list(Event.objects.filter(kind="override").values_list("before", "after"))
    )

    assert held.count("'(hidden)'") == 3
    assert held.count("'(hidden, changed)'") == 1
    assert PASSWORD not in held
    assert LATER not in held


@pytest.mark.nightly
@pytest.mark.parametrize(
    "address", ["/activity/", "/activity/{event}/", "/api/v1/events/{event}"]
)
def test_no_page_shows_what_an_override_puts_into_a_secret(
    viewer: Client, text_of: Fetch, overridden: Event, address: str
) -> None:
    page = MARKS.sub("", text_of(viewer, address.format(event=overridden.pk)))

    assert "(hidden, changed)" in page
    assert PASSWORD not in page
    assert LATER not in page


@pytest.mark.usefixtures("overridden")
def test_the_override_itself_stays_complete_over_rest(
    reader_of_secrets: Client,
) -> None:
    answer = reader_of_secrets.get("/api/v1/overrides/ResourceOverride/shop/api-key")

    assert stored_document(answer.json()) == overriding(LATER)


def test_kinds_and_filters_are_words(viewer: Client) -> None:
    page = page_text(viewer.get("/activity/"))

    assert '<option value="kind=staged-run">Staged run</option>' in page
    assert '<a href="?kind=staged-run">Staged run</a>' in page
    assert [plain(code) for code in ("not-eligible", "timeOut", "lostState")] == [
        "not eligible",
        "time out",
        "lost state",
    ]


def test_activity_is_ordered_by_time_whatever_was_written_first(
    viewer: Client, text_of: Fetch
) -> None:
    """A long operation records its events with the time at which it started, after those of shorter ones."""
    record(
        AuditEvent("changed", "cluster", "later"),
        by=None,
        now=NOW + timedelta(seconds=9),
    )
    record(AuditEvent("changed", "cluster", "earlier"), by=None, now=NOW)
    page = text_of(viewer, f"/activity/{Event.objects.get(name='later').pk}/")
    assert (
        '<a href="/clusters/later/">later</a>' in page
    )  # without details, it leads to its object

    record(
        AuditEvent(
            "not decided",
            "placement",
            "web",
            after={"reason": "API lost"},
            is_warning=True,
        ),
        by=None,
        now=NOW,
    )

    page = text_of(viewer, "/activity/")
    answer = viewer.get("/api/v1/events?type=Normal").json()
    lost = viewer.get("/api/v1/events?type=Warning&reason=PlacementNotDecided").json()

    assert [(item["name"], item["type"]) for item in lost["items"]] == [
        ("web", "Warning")
    ]
    assert [
        item["name"]
        for item in viewer.get("/api/v1/events?cluster=later").json()["items"]
    ] == ["later"]
    assert ">web<" in text_of(viewer, "/activity/?q=type%3DWarning")
    assert ">later<" not in text_of(viewer, "/activity/?q=type%3DWarning")
    assert page.index(">later<") < page.index(">earlier<")
    assert "1–3 of 3" in page  # noqa: RUF001
    assert "1–2 </span>" in text_of(viewer, "/activity/?q=er")  # noqa: RUF001 -- too many to count
    assert [item["name"] for item in answer["items"]] == ["later", "earlier"]
