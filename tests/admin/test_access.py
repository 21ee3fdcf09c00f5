"""Who may what in the admin, address by address."""

from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client

from clusters.models import MemberCluster
from fleetui.models import Event
from tests.admin.pages import ADD, CLUSTERS, change_url, fields_of, text_of
from tests.rows import decided, joined, person, pick_n_spec

admin.autodiscover()
pytestmark = pytest.mark.django_db
LISTS = ("clusters/membercluster",)
PEOPLE = sorted(
    {
        f"{model._meta.app_label}/{model._meta.model_name}"
        for model in admin.site._registry
    }
    - {*LISTS}
)
"""Every other model of the admin: who may what."""
MUTATING = ("add", "change")


def _send(client: Client, what: str) -> int:
    url = {"add": ADD, "change": change_url("a")}[what]
    return client.post(url, {"key": "region", "value": "west"}).status_code


@pytest.mark.parametrize("what", MUTATING)
@pytest.mark.parametrize(
    ("role", "status"),
    [("anonymous", 302), ("no-role", 302), ("viewer", 403), ("approver", 403)],
)
def test_only_operators_change_anything(
    browser_of: Callable[[str], Client], what: str, role: str, status: int
) -> None:
    joined("a", region="east")

    assert _send(browser_of(role), what) == status

    assert Event.objects.count() == 1
    assert MemberCluster.objects.get().revision == 1


@pytest.mark.parametrize("role", ["operator", "superuser"])
@pytest.mark.parametrize("what", MUTATING)
def test_operators_get_through(
    browser_of: Callable[[str], Client], what: str, role: str
) -> None:
    joined("a", region="east")

    assert _send(browser_of(role), what) in (200, 302, 422)


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_the_list_offers_no_actions_to_those_who_look(
    browser_of: Callable[[str], Client], role: str
) -> None:
    cluster = joined("a")
    client = browser_of(role)

    page = text_of(client.get(CLUSTERS))
    client.post(CLUSTERS, {"action": "leave", "_selected_action": [cluster.pk]})

    assert 'name="action"' not in page
    assert "/import/" not in page
    assert MemberCluster.objects.get().membership == "joined"


@pytest.mark.parametrize(
    "role", ["anonymous", "no-role", "viewer", "approver", "operator", "superuser"]
)
def test_clusters_cannot_be_deleted(
    browser_of: Callable[[str], Client], role: str
) -> None:
    cluster = joined("a")

    status = (
        browser_of(role)
        .post(f"{CLUSTERS}{cluster.pk}/delete/", {"post": "yes"})
        .status_code
    )

    assert status in (302, 403)
    assert MemberCluster.objects.exists()


@pytest.mark.parametrize("address", LISTS)
@pytest.mark.parametrize("role", ["viewer", "approver", "operator", "superuser"])
def test_everyone_with_a_role_looks_at_everything(
    browser_of: Callable[[str], Client], role: str, address: str
) -> None:
    joined("a", region="east")
    decided("web", pick_n_spec(1))

    answer = browser_of(role).get(f"/admin/{address}/")

    assert answer.status_code == 200


@pytest.mark.parametrize("address", [*LISTS, ""])
@pytest.mark.parametrize("role", ["anonymous", "no-role"])
def test_others_are_sent_to_log_in(
    browser_of: Callable[[str], Client], role: str, address: str
) -> None:
    answer = browser_of(role).get(f"/admin/{address}/".replace("//", "/"))

    assert answer.status_code == 302
    assert "/admin/login/" in answer["Location"]


@pytest.mark.parametrize("address", PEOPLE)
def test_people_are_for_superusers(
    browser_of: Callable[[str], Client], address: str
) -> None:
    operator = browser_of("operator")
    user = User.objects.get(username="a-operator")
    user.user_permissions.set(Permission.objects.all())

    statuses = [
        operator.get(f"/admin/{address}/{end}").status_code for end in ("", "add/")
    ]

    assert statuses == [403, 403]
    assert "auth/user" not in text_of(operator.get("/admin/"))
    assert browser_of("superuser").get(f"/admin/{address}/").status_code == 200


def test_only_a_superuser_removes_a_lost_second_factor(
    browser_of: Callable[[str], Client],
) -> None:
    row = Authenticator.objects.create(
        user=person("ada"), type="totp", data={"secret": "a-planted-secret"}
    )
    address = f"/admin/mfa/authenticator/{row.pk}"

    superuser = browser_of("superuser")
    refused = (
        browser_of("operator").post(f"{address}/delete/", {"post": "yes"}).status_code
    )
    page = text_of(superuser.get(f"{address}/change/"))
    removed = superuser.post(f"{address}/delete/", {"post": "yes"}).status_code

    assert (refused, removed) == (403, 302)
    assert "a-planted-secret" not in page
    assert not Authenticator.objects.exists()


def test_the_admin_has_no_login_of_its_own(browser_of: Callable[[str], Client]) -> None:
    person("ada", "viewer")

    answer = Client().post(
        "/admin/login/", {"username": "ada", "password": "a long enough password"}
    )

    assert (answer.status_code, answer["Location"]) == (302, "/login/?next=/admin/")
    assert browser_of("no-role").get("/admin/login/?next=/admin/").status_code == 403


def test_a_role_is_enough_to_log_in() -> None:
    person("ada", "viewer")
    client = Client()
    page = client.get("/admin/", follow=True)
    given = {**fields_of(page), "username": "ada", "password": "a long enough password"}

    answer = client.post("/login/", given)

    assert page.redirect_chain[-1][0] == "/login/?next=/admin/"
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert "Member clusters" in text_of(client.get("/admin/"))
