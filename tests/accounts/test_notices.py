"""Users learn of changes of their account by e-mail, or the log has them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from fleetui.access.audit import VERBS
from fleetui.access.models import AccessEvent
from fleetui.access.tokens import create_login_token, create_token
from fleetui.env import SettingRefused, parse_mail_server, read_variables
from tests.accounts.conftest import PASSWORD
from tests.accounts.test_second_factor import add_app, confirmed
from tests.rows import person

pytestmark = pytest.mark.django_db
ADDRESS = "ana@example.com"


@pytest.fixture
def ana(settings: Settings) -> User:
    settings.EMAIL_HOST = "mail.example.com"
    user = person("ana", "operator")
    user.email = ADDRESS
    user.save()
    return user


def change_password(client: Client) -> None:
    new = "another passphrase of hers"
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    assert client.post("/account/password/", form).status_code == 302


@pytest.mark.nightly
def test_changes_of_an_account_are_sent_to_its_owner(
    ana: User, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    now = datetime.now(UTC)
    with django_capture_on_commit_callbacks(execute=True):
        client = confirmed("ana")
        add_app(client)
        client.post("/account/second-factor/app/remove/")
        create_token(ana, name="deploy", by=ana, scopes=["read"], days=1, now=now)
        create_login_token(ana, scopes=["read"], days=1, now=now)
        change_password(client)

    subjects = [one.subject.removeprefix("FleetUI: ") for one in mail.outbox]
    assert (
        subjects
        == [
            "The authenticator app was removed",
            "The API token deploy was created",
            "The password was changed",
            "An authenticator app was added",  # last in a test: allauth waits for the end of the transaction
        ]
    )
    assert {one.to[0] for one in mail.outbox} == {ADDRESS}
    assert "Account: ana\n" in mail.outbox[0].body
    assert "Address: 127.0.0.1\n" in mail.outbox[0].body
    lines = AccessEvent.objects.filter(
        verb__in=("account changed", "password changed")
    ).order_by("pk")
    assert {line.verb for line in lines} <= {*VERBS}
    assert [line.details["change"] for line in lines] == [subjects[0], *subjects[2:]]


@pytest.mark.parametrize(("host", "address"), [("", ADDRESS), ("mail.example.com", "")])
def test_without_a_server_or_an_address_the_log_has_the_notice(
    ana: User,
    settings: Settings,
    host: str,
    address: str,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    settings.EMAIL_HOST, ana.email = host, address
    ana.save()

    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        change_password(confirmed("ana"))

    assert "notice to ana: The password was changed" in caplog.text
    assert mail.outbox == []


def test_a_server_that_fails_prevents_no_change(
    ana: User,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    def fail(*_arguments: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr("fleetui.access.notices.send_mail", fail)
    with django_capture_on_commit_callbacks(execute=True):
        change_password(confirmed("ana"))

    ana.refresh_from_db()
    assert not ana.check_password(PASSWORD)
    assert (
        "notice to ana not sent (ConnectionRefusedError): The password was changed"
        in caplog.text
    )


def test_servers_of_mail_have_tls_unless_they_are_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tls = parse_mail_server("smtps://ann%40x:p%2Fw@mail.example.com")
    assert (tls["EMAIL_USE_SSL"], tls["EMAIL_PORT"], tls["EMAIL_USE_TLS"]) == (
        True,
        465,
        False,
    )
    assert (tls["EMAIL_HOST_USER"], tls["EMAIL_HOST_PASSWORD"]) == ("ann@x", "p/w")
    starting = parse_mail_server("smtp://mail.example.com:25")
    local = parse_mail_server("smtp://localhost")
    assert (
        starting["EMAIL_USE_TLS"],
        starting["EMAIL_PORT"],
        local["EMAIL_USE_TLS"],
    ) == (True, 25, False)
    assert parse_mail_server("")["EMAIL_HOST"] == ""
    for text in (
        "mail.example.com",
        "https://mail.example.com",
        "smtp://",
        "smtp://u:secret@h/x",
        "smtp://h:x",
    ):
        monkeypatch.setenv("FLEETUI_MAIL_SERVER", text)
        with pytest.raises(SettingRefused, match="write smtps://") as refusal:
            read_variables()
        assert "secret" not in str(refusal.value)
