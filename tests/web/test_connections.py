"""The pages of connections: check, join, test, rotate, renew, remove; and that no secret is shown."""

import html
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client, override_settings

from clusters.credentials import decrypt
from clusters.drivers.base import KUBERNETES
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.edit import forget
from fleetui.apimachinery.yaml import load_documents
from fleetui.models import Event
from placements.services.resources.operations import apply_resources
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.local_members import TOKEN, kubeconfig
from tests.clusters.kubernetes.servers import LocalServer, Member
from tests.clusters.kubernetes.test_connection import account_token
from tests.commands import call_command
from tests.rows import (
    NOW,
    decided,
    deployment,
    joined,
    namespace,
    person,
    simulated,
    spec,
)
from tests.web.reading import Outline

NEW = "/clusters/new/"
PAGE = "/clusters/member/connection/"
HTMX = {"HX-Request": "true"}
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("local_drivers")]


@pytest.fixture
def administrator() -> Client:
    browser = Client()
    browser.force_login(person("carl", "cluster-administrator"))
    return browser


def entered(server: LocalServer, **more: str) -> dict[str, str]:
    form = {
        "kind": "kubernetes",
        "source": "kubeconfig",
        "kubeconfig": kubeconfig(server),
        "do": "check",
    }
    return {"name": "member", **form, **more}


def fields(server: LocalServer, /, **more: str) -> dict[str, str]:
    public = {"server": server.url, "ca": authority().pem.replace("\n", "\r\n")}
    return {"source": "fields", **public, "token": TOKEN, "do": "save", **more}


def join(browser: Client, server: LocalServer) -> MemberCluster:
    assert browser.post(NEW, entered(server, do="save")).status_code == 302
    return MemberCluster.objects.select_related("credential").get(name="member")


def words(content: bytes) -> str:
    """Return the text of a page in one line."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", content.decode())).split())


@pytest.mark.nightly
def test_a_check_saves_nothing_and_shows_every_step(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    member.denied = {"create configmaps", "list nodes"}

    checked = administrator.post(NEW, entered(server), headers=HTMX)

    text = words(checked.content)
    assert checked.status_code == 200
    assert "Check failed · permissions missing on 2 kinds" in text
    assert "Version Passed Kubernetes v1.30.1." in text
    assert "configmaps in fleetui-system get allowed list allowed create no" in text
    assert 'create Apply the manifest of "Prepare a cluster" with this kind.' in text
    assert "Save although the check failed" in text
    assert not MemberCluster.objects.exists()


def test_a_missing_optional_permission_fails_no_check(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    member.denied = {"list pods"}

    text = words(administrator.post(NEW, entered(server), headers=HTMX).content)

    assert "Check passed" in text
    assert "although the check failed" not in text
    assert (
        "Not required: without it the available capacity of the cluster is unknown."
        in text
    )


def test_steps_after_a_failed_one_are_not_run(
    administrator: Client, server: LocalServer
) -> None:
    wrong = kubeconfig(server, "another-token")

    text = words(
        administrator.post(NEW, entered(server, kubeconfig=wrong), headers=HTMX).content
    )

    assert "Authentication Failed Credentials rejected (401)." in text
    assert "Permissions Not run" in text


@pytest.mark.nightly
def test_a_cluster_joins(administrator: Client, server: LocalServer) -> None:
    answer = administrator.post(NEW, entered(server, do="save"), headers=HTMX)

    row = MemberCluster.objects.select_related("credential").get()
    assert answer.headers["HX-Redirect"] == PAGE
    assert (row.name, row.driver, row.connection["server"]) == (
        "member",
        KUBERNETES,
        server.url,
    )
    assert decrypt(row.uid, row.credential.ciphertext).values == {"token": TOKEN}
    assert "Member cluster member added." in words(administrator.get(PAGE).content)


def test_a_failed_check_needs_confirmation(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    member.denied = {"list nodes"}

    refused = administrator.post(NEW, entered(server, do="save"))
    assert refused.status_code == 422
    assert "Not saved: the check failed." in words(refused.content)
    assert not MemberCluster.objects.exists()

    confirmed = administrator.post(
        NEW, entered(server, do="save", confirm="failed-check")
    )
    assert confirmed.headers["Location"] == PAGE
    assert MemberCluster.objects.get().connection["server"] == server.url


@pytest.mark.nightly
def test_errors_are_at_their_fields(
    administrator: Client, subtests: pytest.Subtests
) -> None:
    joined("member")
    given: dict[str, dict[str, str]] = {
        "name": {
            "source": "fields",
            "name": "Not a name",
            "server": "https://10.0.0.1",
            "token": "x",
        },
        "kubeconfig": {"source": "kubeconfig", "name": "other"},
        "server": {
            "source": "fields",
            "name": "other",
            "server": "http://member.test",
            "token": "x",
        },
        "certificate": {
            "source": "fields",
            "server": "https://10.0.0.1",
            "certificate": "x",
        },
        "token": {"source": "fields", "server": "https://10.0.0.1"},
    }
    for field, more in given.items():
        with subtests.test(field):
            form = {"kind": "kubernetes", "name": "other", "do": "save", **more}
            page = administrator.post(NEW, form)
            part = administrator.post(NEW, form, headers=HTMX).content.decode()

            at = (
                page.content.decode()
                .partition(f'<div id="errors-{field}">')[2]
                .partition("</div>")[0]
            )
            assert (page.status_code, 'class="errors"' in at) == (422, True)
            assert (
                f'<div id="errors-{field}" hx-swap-oob="true">\n  <div role="alert"><ul class="errors"'
                in re.sub(r">\s*\n\s*<", ">\n  <", part)
            )
            assert Outline(page.content.decode()).problems == []
    assert MemberCluster.objects.count() == 1


def test_an_error_in_a_kubeconfig_has_its_path_and_what_is_allowed(
    administrator: Client, server: LocalServer
) -> None:
    document = json.loads(kubeconfig(server))
    document["users"][0]["user"] = {"exec": {"command": "aws"}}
    program = administrator.post(NEW, entered(server, kubeconfig=json.dumps(document)))
    context = administrator.post(NEW, entered(server, context="other"))

    assert "kubeconfig.users[0].user.exec Not supported: would run a program" in words(
        program.content
    )
    assert 'context Not found: context "other" (allowed: main)' in words(
        context.content
    )


def test_what_a_kubeconfig_lacks_is_shown_at_the_kubeconfig(
    administrator: Client, server: LocalServer
) -> None:
    document = json.loads(kubeconfig(server))
    del document["users"][0]["user"]["token"]

    answer = administrator.post(
        NEW, entered(server, kubeconfig=json.dumps(document))
    ).content.decode()

    at = answer.partition('<div id="errors-kubeconfig">')[2].partition("</div>")[0]
    assert "Required value: the credentials" in at


def test_a_name_that_is_there_already_is_refused(
    administrator: Client, server: LocalServer
) -> None:
    joined("member")

    answer = administrator.post(NEW, entered(server, do="save"))

    assert answer.status_code == 422
    assert "member is in the fleet already" in words(answer.content)


def test_operators_add_clusters_without_a_connection(operator: Client) -> None:
    added = operator.post(NEW, {"name": "toy", "kind": "simulated"})
    reported = operator.post(NEW, {"name": "far", "kind": "agent"})
    again = operator.post(NEW, {"name": "far", "kind": "agent"})

    drivers = dict(MemberCluster.objects.values_list("name", "driver"))
    assert (added.headers["Location"], reported.headers["Location"]) == (
        "/clusters/toy/",
        "/clusters/far/",
    )
    assert drivers == {"toy": "simulated", "far": ""}
    assert again.status_code == 422
    assert "cluster far is in the fleet already" in words(again.content)
    assert operator.post(NEW, {"name": "far", "kind": "other"}).status_code == 422


@pytest.mark.nightly
def test_the_page_of_a_connection(
    administrator: Client, server: LocalServer, viewer: Client
) -> None:
    row = join(administrator, server)

    visible, hidden = (
        words(browser.get(PAGE).content) for browser in (administrator, viewer)
    )

    for text in (server.url, row.credential.fingerprint, "SHA-256", "CN="):
        assert text in visible
        assert text not in hidden
    assert "Credentials Token" in hidden
    assert "Test connection" not in hidden


@pytest.mark.nightly
def test_viewers_see_no_address(
    administrator: Client, viewer: Client, server: LocalServer
) -> None:
    join(administrator, server)
    version = {"k8s.io/k8s-version": "v1.33.1"}
    MemberCluster.objects.update(
        properties={"k8s.io/cluster-entrypoint": server.url, "a.b/c": "1", **version}
    )

    assert (
        server.url in administrator.get("/clusters/member/properties/").content.decode()
    )
    assert (
        "<dt>Kubernetes</dt><dd>v1.33.1</dd>"
        in viewer.get("/clusters/member/").content.decode()
    )
    properties = viewer.get("/clusters/member/properties/").content.decode()
    assert (server.url in properties, "a.b/c" in properties) == (False, True)


@pytest.mark.nightly
def test_a_connection_is_tested(
    administrator: Client, viewer: Client, server: LocalServer, member: Member
) -> None:
    join(administrator, server)
    member.denied = {"delete configmaps"}

    part = administrator.post(f"{PAGE}check/", headers=HTMX)
    page = administrator.post(f"{PAGE}check/")

    assert part.content.decode().startswith('<div id="check">')
    assert "Check failed · permissions missing on 1 kind" in words(part.content)
    assert "Check failed" in words(page.content)
    assert Outline(page.content.decode()).problems == []
    assert viewer.post(f"{PAGE}check/").status_code == 403


@pytest.mark.nightly
def test_credentials_are_rotated(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    before = join(administrator, server)
    member.tokens = {"marker-second"}
    form = administrator.get(f"{PAGE}edit/?source=fields").content.decode()
    assert server.url in form
    assert 'value="fields" checked' in form
    assert TOKEN not in form

    same = {"revision": str(before.revision)}
    assert administrator.post(f"{PAGE}edit/", fields(server, **same)).status_code == 422
    saved = administrator.post(
        f"{PAGE}edit/", fields(server, token="marker-second", **same)
    )

    after = ClusterCredential.objects.get()
    assert saved.headers["Location"] == PAGE
    assert after.fingerprint != before.credential.fingerprint
    stale = administrator.post(
        f"{PAGE}edit/", fields(server, token="marker-second", revision="77")
    )
    assert stale.status_code == 422
    assert "this edit started from 77" in words(stale.content)


@pytest.mark.nightly
def test_empty_secrets_keep_the_stored_ones(
    administrator: Client, server: LocalServer
) -> None:
    row = join(administrator, server)

    kept = administrator.post(
        f"{PAGE}edit/", fields(server, token="", revision=str(row.revision))
    )
    moved = administrator.post(
        f"{PAGE}edit/",
        fields(
            server, token="", server="https://localhost:1", revision=str(row.revision)
        ),
    )

    assert kept.status_code == 302
    assert "the credentials, since the connection changes" in words(moved.content)
    assert ClusterCredential.objects.get().revision == row.credential.revision


def test_a_token_is_renewed(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    old, new = account_token(), account_token(lifetime=timedelta(days=31))
    member.tokens.add(old)
    administrator.post(
        NEW, entered(server, kubeconfig=kubeconfig(server, old), do="save")
    )
    assert "Renew now" in words(administrator.get(PAGE).content)

    member.denied = {"create serviceaccounts/token"}
    failed = administrator.post(f"{PAGE}renew/", follow=True)
    member.denied, member.issued = set(), [new]
    renewed = administrator.post(f"{PAGE}renew/", follow=True)

    assert "Credentials not renewed: the API server answers 403" in words(
        failed.content
    )
    assert "Credentials of member renewed." in words(renewed.content)
    row = MemberCluster.objects.select_related("credential").get()
    assert decrypt(row.uid, row.credential.ciphertext).values == {"token": new}


def test_a_connection_is_removed(administrator: Client, server: LocalServer) -> None:
    row = join(administrator, server)

    stale = administrator.post(f"{PAGE}remove/", {"revision": "99"})
    removed = administrator.post(
        f"{PAGE}remove/", {"revision": str(row.revision)}, follow=True
    )

    assert stale.status_code == 409
    assert "Connection of member removed." in words(removed.content)
    assert "The console does not connect to this cluster." in words(removed.content)
    assert not ClusterCredential.objects.exists()
    assert MemberCluster.objects.get().driver == ""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("refused", "Connection refused since 09:12 UTC"),
        ("http-503", "API server answers 503 since 09:12 UTC"),
        (
            "tls-insecure-not-allowed",
            "Not connected: TLS verification is off, which this console does not allow",
        ),
        ("", "Not reachable since 09:12 UTC"),
    ],
)
def test_why_a_cluster_does_not_answer(
    administrator: Client, viewer: Client, server: LocalServer, code: str, expected: str
) -> None:
    join(administrator, server)
    since = datetime.now(UTC).replace(hour=9, minute=12)
    MemberCluster.objects.update(unanswered_since=since, unanswered_code=code)

    for address in ("/clusters/", "/clusters/member/", PAGE):
        assert expected in words(viewer.get(address).content)


def test_rejected_credentials_come_first(
    administrator: Client, viewer: Client, server: LocalServer
) -> None:
    join(administrator, server)
    since = datetime(2026, 1, 2, 9, 12, tzinfo=UTC)
    MemberCluster.objects.update(unanswered_since=since, unanswered_code="timeout")
    ClusterCredential.objects.update(
        unauthorized_since=since, unauthorized_count=2, blocked_until=since
    )

    for address in ("/clusters/", "/clusters/member/", PAGE):
        assert "Credentials rejected since 2026-01-02 09:12 UTC" in words(
            viewer.get(address).content
        )


@pytest.mark.nightly
def test_expiry_is_announced(
    administrator: Client, viewer: Client, server: LocalServer
) -> None:
    join(administrator, server)
    now = datetime.now(UTC)
    ClusterCredential.objects.update(expires_at=now + timedelta(days=15))
    assert "expires on" not in words(viewer.get(PAGE).content)

    ClusterCredential.objects.update(expires_at=now + timedelta(days=13))
    assert f"expires on {now + timedelta(days=13):%Y-%m-%d}" in words(
        viewer.get(PAGE).content
    )


def test_insecure_tls_is_shown_on_every_tab_and_in_the_list(
    administrator: Client, viewer: Client, server: LocalServer
) -> None:
    with override_settings(ALLOW_INSECURE_TLS=True):
        form = {
            "name": "member",
            "kind": "kubernetes",
            **fields(server, ca="", insecureTLS="on"),
        }
        added = administrator.post(NEW, form, follow=True)
    warning = (
        "TLS verification is off. Anyone on the network path can read the credentials and change what is "
        "applied. Add the CA certificate."
    )

    assert warning in words(added.content)
    for address in ("/clusters/member/", PAGE):
        assert warning in words(viewer.get(address).content)
    assert "Insecure TLS" in words(viewer.get("/clusters/").content)
    assert (
        'name="insecureTLS"' not in administrator.get(f"{PAGE}edit/").content.decode()
    )


def test_prepare_shows_and_downloads_the_manifest(administrator: Client) -> None:
    page = administrator.get("/clusters/new/prepare/")
    chosen = "?chosen=yes&definitions=on&groups=example.com"
    part = administrator.get(
        f"/clusters/new/prepare/{chosen}", headers=HTMX
    ).content.decode()
    file = administrator.get(f"/clusters/new/prepare/{chosen}&download=yaml")
    wrong = administrator.get("/clusters/new/prepare/?groups=No_Group")

    assert "kubectl apply -f fleetui-prepare.yaml" in words(page.content)
    assert "customresourcedefinitions" in part
    assert (
        file.headers["Content-Disposition"]
        == 'attachment; filename="fleetui-prepare.yaml"'
    )
    documents = [document.data for document in load_documents(file.content.decode())]
    kinds = [(document["kind"], document["metadata"]["name"]) for document in documents]
    assert kinds[:2] == [("Namespace", "fleetui-system"), ("ServiceAccount", "fleetui")]
    assert "pods" not in str(documents)
    assert wrong.status_code == 422
    assert "groups[0]" in words(wrong.content)


def test_the_admin_shows_the_credentials_to_cluster_administrators_only(
    administrator: Client, operator: Client, server: LocalServer
) -> None:
    row = join(administrator, server)
    MemberCluster.objects.update(properties={"k8s.io/cluster-entrypoint": server.url})
    address = f"/admin/clusters/membercluster/{row.pk}/change/"

    visible, hidden = (
        words(browser.get(address).content) for browser in (administrator, operator)
    )

    assert (
        f"expiresAt – fingerprint {row.credential.fingerprint} kind token subject"  # noqa: RUF001
        in visible
    )
    assert row.credential.fingerprint not in hidden
    assert server.url not in hidden
    assert row.credential.ciphertext not in visible


def test_a_simulated_cluster_has_no_connection(administrator: Client) -> None:
    simulated("toy")

    assert "has no connection" in words(
        administrator.get("/clusters/toy/connection/").content
    )
    assert "toy has no connection." in words(
        administrator.get("/clusters/toy/connection/remove/").content
    )
    assert administrator.post("/clusters/toy/connection/remove/").status_code == 404
    assert administrator.post("/clusters/toy/connection/check/").status_code == 404


@pytest.mark.nightly
def test_no_secret_comes_back(
    administrator: Client, server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pair = authority().issue("admin")
    secrets = [TOKEN, "marker-second", pair.key.splitlines()[2], "marker-broken"]
    answers: list[Any] = []
    for headers in ({}, HTMX):
        answers += [
            administrator.post(NEW, entered(server), headers=headers),
            administrator.post(
                NEW, entered(server, name="No Name", do="save"), headers=headers
            ),
            administrator.post(
                NEW, entered(server, kubeconfig="{marker-broken"), headers=headers
            ),
            administrator.post(
                NEW, {"kind": "kubernetes", **fields(server, token="marker-second x")}
            ),
        ]
    row = join(administrator, server)
    both = {
        "certificate": pair.certificate,
        "key": pair.key,
        "revision": str(row.revision),
    }
    answers += [
        administrator.post(f"{PAGE}edit/", fields(server, **both)),
        administrator.post(f"{PAGE}edit/", fields(server, token="", **both)),
        administrator.post(f"{PAGE}check/"),
        *(
            administrator.get(one)
            for one in (PAGE, f"{PAGE}edit/", "/clusters/member/", "/activity/")
        ),
        administrator.get(f"/admin/clusters/membercluster/{row.pk}/change/"),
    ]
    texts = [
        *(answer.content.decode() for answer in answers),
        caplog.text,
        json.dumps(list(Event.objects.values("verb", "before", "after"))),
    ]
    for secret in secrets:
        assert [text[:200] for text in texts if secret in text] == []


@pytest.mark.nightly
def test_a_cluster_joins_with_labels_and_taints(
    administrator: Client, server: LocalServer
) -> None:
    typed = {"labels": "region=east", "taints": "gpu"}

    administrator.post(NEW, entered(server, do="save", **typed))

    document = MemberCluster.objects.get().document
    assert document["metadata"]["labels"] == {"region": "east"}
    assert document["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]


def test_a_malformed_label_is_an_error_at_its_field(
    administrator: Client, server: LocalServer
) -> None:
    answer = administrator.post(
        NEW, entered(server, do="save", labels="region"), headers=HTMX
    )

    assert answer.status_code == 422
    errors = (
        answer.content.decode()
        .partition('id="errors-labels"')[2]
        .partition("</div>")[0]
    )
    assert "key=value" in errors
    assert not MemberCluster.objects.exists()


@pytest.mark.nightly
def test_the_check_of_a_new_cluster_reports_usual_kinds_and_requires_those_of_placements(
    administrator: Client, server: LocalServer, member: Member
) -> None:
    member.denied = {"create jobs"}
    passed = words(administrator.post(NEW, entered(server), headers=HTMX).content)
    assert "Check passed" in passed
    assert "Not required now: no placement needs it here" in passed

    apply_resources([namespace("shop"), deployment("web", "shop:1")], by=None, now=NOW)
    region = {"labelSelector": {"matchLabels": {"region": "east"}}}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [region]
        }
    }
    decided(
        "web",
        spec({"placementType": "PickAll", "affinity": {"clusterAffinity": required}}),
    )
    member.denied = {"patch deployments"}
    elsewhere = words(administrator.post(NEW, entered(server), headers=HTMX).content)
    selected = words(
        administrator.post(
            NEW, entered(server, labels="region=east"), headers=HTMX
        ).content
    )

    assert "Check passed" in elsewhere
    assert "Check failed" in selected


@pytest.mark.nightly
def test_the_address_is_in_rest_and_exports_for_administrators_only(
    administrator: Client, server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    join(administrator, server)
    MemberCluster.objects.update(
        properties={"k8s.io/cluster-entrypoint": server.url, "a.b/c": "1"}
    )
    viewer = Client()
    viewer.force_login(person("vera", "viewer"))

    responses = [
        client.get("/api/v1/clusters/member").content.decode()
        for client in (administrator, viewer)
    ]
    call_command("export", "clusters", "--as", "vera")

    assert [server.url in response for response in responses] == [True, False]
    assert "a.b/c" in responses[1]
    exported = capsys.readouterr().out
    assert "a.b/c" in exported
    assert server.url not in exported


@pytest.mark.nightly
def test_a_cluster_that_leaves_records_that_its_credentials_were_removed(
    administrator: Client, server: LocalServer
) -> None:
    row = join(administrator, server)

    forget([row], verb="left", by=None, now=NOW)

    assert not ClusterCredential.objects.exists()
    removed = Event.objects.get(verb="credentials removed")
    assert removed.before["fingerprint"] == row.credential.fingerprint
