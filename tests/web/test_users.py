"""Users: superusers see and set roles; everyone else is refused."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from fleetui.access.models import AccessEvent
from tests.page_samples import USER_PAGES
from tests.rows import person
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db
PASSWORD = "a long enough password"


def test_a_superuser_adds_a_viewer_and_changes_the_role(client: Client) -> None:
    root = User.objects.create_superuser("root")
    client.force_login(root)

    added = client.post(
        "/users/", {"username": "vera", "password": PASSWORD, "roles": ["viewer"]}
    )
    vera = User.objects.get(username="vera")
    vera.groups.add(Group.objects.create(name="payments"))
    changed = client.post(f"/users/{vera.pk}/", {"roles": ["approver"], "active": "on"})
    page, own = (
        client.get("/users/").content.decode(),
        client.get(f"/users/{vera.pk}/").content.decode(),
    )

    assert (added.status_code, changed.status_code) == (302, 302)
    assert Outline(page).problems == Outline(own).problems == []
    assert {group.name for group in vera.groups.all()} == {"approver", "payments"}
    assert "Approver" in page
    assert Client().login(username="vera", password=PASSWORD)
    assert AccessEvent.objects.filter(
        verb="account changed", subject="vera", actor_name="root"
    ).exists()

    client.post(f"/users/{vera.pk}/", {"roles": ["approver"]})
    assert not Client().login(username="vera", password=PASSWORD)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"username": "vera", "password": "short"}, "at least 12 characters"),
        ({"username": "", "password": PASSWORD}, "cannot be blank"),
        ({"username": "root", "password": PASSWORD}, "already exists"),
        (
            {"username": "vera", "password": PASSWORD, "roles": ["king"]},
            "Unsupported value",
        ),
    ],
)
def test_invalid_input_adds_no_user(
    client: Client, given: dict[str, str], words: str
) -> None:
    client.force_login(User.objects.create_superuser("root"))

    answer = client.post("/users/", given)

    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert User.objects.count() == 1


def test_superusers_do_not_lock_themselves_out(client: Client) -> None:
    root = User.objects.create_superuser("root")
    client.force_login(root)

    answer = client.post(f"/users/{root.pk}/", {"roles": []})

    assert answer.status_code == 422
    assert User.objects.get().is_active


def test_others_are_refused(operator: Client) -> None:
    other = person("li", "viewer")
    for address in USER_PAGES.values():
        path = address.format(user=other.pk)
        assert (
            operator.get(path).status_code
            == operator.post(path, {"roles": "operator"}).status_code
            == 403
        )
    assert 'href="/users/"' not in operator.get("/").content.decode()
    assert [group.name for group in other.groups.all()] == ["viewer"]
