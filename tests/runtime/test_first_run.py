"""The first administrator is made once, and its password can be read."""

from io import StringIO
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from fleetui import bootstrap
from fleetui.bootstrap import FirstRunError, NewAdministrator, make_first_administrator
from fleetui.management.commands.up import Command

pytestmark = [pytest.mark.django_db, pytest.mark.servers]

PASSWORD = "correct horse battery"


def test_password_is_generated_and_printed() -> None:
    made = make_first_administrator(username="admin", password=None)

    assert made
    assert made.generated_password
    assert len(made.generated_password) >= 16
    assert User.objects.get(
        username="admin", is_superuser=True, is_staff=True
    ).check_password(made.generated_password)


def test_password_of_the_environment_is_used_and_not_printed() -> None:
    made = make_first_administrator(username="root", password=PASSWORD)

    assert made == NewAdministrator("root", generated_password=None)
    assert User.objects.get(username="root").check_password(PASSWORD)


def test_creates_no_user_where_there_is_an_administrator() -> None:
    User.objects.create_superuser("root")

    assert make_first_administrator(username="admin", password=None) is None
    assert User.objects.count() == 1


def test_of_two_that_start_at_once_only_one_makes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr(bootstrap, "_has_administrator", lambda: next(answers))
    User.objects.create_superuser("admin", password=PASSWORD)

    made = make_first_administrator(username="admin", password=None)

    assert made is None
    assert User.objects.get(username="admin").check_password(PASSWORD)


def test_a_user_of_that_name_does_not_become_administrator() -> None:
    User.objects.create_user("admin")

    with pytest.raises(
        FirstRunError, match="'admin' is there and no administrator; name another one"
    ):
        make_first_administrator(username="admin", password=None)

    assert not User.objects.get(username="admin").is_superuser


def test_up_says_at_the_first_start_where_the_password_is(
    settings: Settings, tmp_path: Path
) -> None:
    settings.VAR_DIR = tmp_path
    first, second = StringIO(), StringIO()

    Command(stdout=first).make_administrator()
    Command(stdout=second).make_administrator()

    path = tmp_path / "first-admin-password"
    password = path.read_text().strip()
    expected = f"Administrator admin, password in {path} (readable by its owner only)\n"
    assert first.getvalue() == expected
    assert path.stat().st_mode & 0o777 == 0o600
    assert User.objects.get().check_password(password)
    assert password not in first.getvalue()
    assert second.getvalue() == ""


def test_up_does_not_print_the_password_of_the_environment(settings: Settings) -> None:
    settings.FIRST_ADMIN_PASSWORD = PASSWORD
    out = StringIO()

    Command(stdout=out).make_administrator()

    assert (
        out.getvalue()
        == "Administrator admin, with the password of FLEETUI_ADMIN_PASSWORD\n"
    )


@pytest.mark.parametrize(
    ("username", "password", "reason"),
    [
        (
            "admin",
            "short",
            r"FLEETUI_ADMIN_PASSWORD is refused: .*at least 12 characters",
        ),
        ("admin", "q1w2e3r4t5y6", "too common"),
        ("administrator", "administrator1", "too similar to the username"),
        ("admin", "83012759102847", "entirely numeric"),
        ("two words", None, "FLEETUI_ADMIN_USER is refused"),
    ],
)
def test_weak_passwords_and_odd_names_are_refused(
    username: str, password: str | None, reason: str
) -> None:
    with pytest.raises(FirstRunError, match=reason) as refusal:
        make_first_administrator(username=username, password=password)

    assert "short" not in str(refusal.value).split()
    assert User.objects.count() == 0
