"""Pages of the objects of a placement on its clusters: states, drift, applying again."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from clusters.models import ClusterCredential, MemberCluster
from placements.engine.rollout.state import Phase
from placements.models import Binding, ObservedObjects, Placement
from tests.database import compare_all
from tests.rows import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

Fetch = Callable[[Client, str], str]
PAGE = "/placements/web/clusters/nimblefox/"
FAULT = {
    "group": "",
    "version": "v1",
    "kind": "Namespace",
    "namespace": "",
    "name": "shop",
    "code": "NotTakenOver",
    "message": "exists on the cluster",
}


def drift(**more: Any) -> dict[str, Any]:
    """Make a row of differences as a binding has it."""
    times = {"observed": NOW.isoformat(), "since": NOW.isoformat()}
    identity = {
        "group": "",
        "version": "v1",
        "kind": "ConfigMap",
        "namespace": "shop",
        "name": "settings",
    }
    difference = {"generation": 3, "fields": [["/data/color", '"green"', ""]]}
    return {
        **identity,
        **times,
        **difference,
        "isDegraded": False,
        "isTruncated": False,
        **more,
    }


def store(**columns: Any) -> None:
    """Write what a call to the cluster would have found."""
    snapshot = Placement.objects.get(name="web").resource_snapshots.latest("number")
    columns = {
        "resource_snapshot": snapshot,
        "state": "Bound",
        "phase": Phase.AVAILABLE,
        **columns,
    }
    Binding.objects.filter(cluster_name="nimblefox").update(**columns)


def test_failed_object_shows_the_message_and_a_hint(
    viewer: Client, text_of: Fetch
) -> None:
    store(phase=Phase.FAILED, failure="refused", failed_objects=[FAULT])
    page = text_of(viewer, PAGE)
    assert "NotTakenOver" in page
    assert "exists on the cluster" in page
    assert "whenToTakeOver is Never" in page


def test_warnings_of_the_api_server_are_shown_by_object(
    viewer: Client, text_of: Fetch
) -> None:
    heading = "Warnings of the API server"
    store()
    assert heading not in text_of(viewer, PAGE)

    settings = {
        "group": "",
        "kind": "ConfigMap",
        "namespace": "shop",
        "name": "settings",
    }
    space = {"group": "", "kind": "Namespace", "namespace": "", "name": "shop"}
    store(
        warnings=[
            {**settings, "messages": ["old", "older"]},
            {**space, "messages": ["<b>unlabelled</b>"]},
        ]
    )
    page = text_of(viewer, PAGE)
    assert heading in page
    assert "ConfigMap shop/settings: old; older" in page
    assert "Namespace shop: &lt;b&gt;unlabelled&lt;/b&gt;" in page


def test_missing_permission_says_where_it_is_found(
    viewer: Client, text_of: Fetch
) -> None:
    message = 'namespaces "shop" is forbidden: User "fleetui" cannot get resource "namespaces"'
    store(
        phase=Phase.FAILED,
        failure="refused",
        failed_objects=[{**FAULT, "code": "", "message": message}],
    )
    assert "Add the permission to the account. Test connection" in text_of(viewer, PAGE)


def problem_of(name: str, page: str) -> tuple[str, ...]:
    """Return the title and the details of a row of the overview."""
    [row] = re.findall(rf">({name}: [^<]*)</a>\s*<p>([^<]*)</p>", page)
    return tuple(row)


def marks(html: str) -> list[str]:
    """Return the words of the status marks, in their order."""
    return re.findall(r'<span class="mark [^"]*"><svg.*?</svg>([^<]+)</span>', html)


@pytest.mark.nightly
def test_cluster_that_does_not_answer_is_late_and_its_placements_are_unreachable(
    viewer: Client, text_of: Fetch
) -> None:
    """Neither available, as it was last read, nor failed, as the placement is on another cluster."""
    store()
    others = Binding.objects.exclude(cluster_name="nimblefox")
    others.update(state="Bound", phase=Phase.FAILED, failure="refused")
    assert "Failed" not in text_of(viewer, "/clusters/nimblefox/")
    assert f'href="{PAGE}"' in text_of(viewer, "/clusters/nimblefox/")

    row = MemberCluster.objects.get(name="nimblefox")
    ClusterCredential.objects.create(
        cluster=row,
        ciphertext="x",
        kind="token",
        subject="fleetui",
        set_at=NOW,
        unauthorized_since=NOW,
    )
    MemberCluster.objects.filter(pk=row.pk).update(
        driver="kubernetes", unanswered_since=NOW, unanswered_code="credentials"
    )
    Binding.objects.filter(cluster_name=row.name).update(message="API server down")
    compare_all(now=datetime.now(UTC))
    page = text_of(viewer, PAGE)
    assert "Unreachable" in marks(page)
    assert "Heartbeat late" not in marks(page)
    assert "Credentials rejected since" in page
    of_web = text_of(viewer, "/placements/web/").partition('id="clusters"')[2]
    assert "Unreachable" in marks(of_web)
    assert "Heartbeat late" not in marks(of_web)
    assert "No heartbeat. API server down" in of_web
    head, _, placements = text_of(viewer, "/clusters/nimblefox/").partition(
        "Placements on this cluster"
    )
    assert marks(head)[0] == "Heartbeat late"
    assert "Unreachable" not in marks(head)
    assert "Unreachable" in marks(placements)
    assert "Heartbeat late" not in marks(placements)
    assert "No heartbeat. API server down" in placements
    listed = text_of(viewer, "/clusters/?state=heartbeat-late").partition("<tbody>")[2]
    assert marks(listed)[0] == "Heartbeat late"
    assert "Unreachable" not in marks(listed)
    assert 'title="nimblefox: Heartbeat late' in text_of(viewer, "/")
    panel = viewer.get(
        "/topology/panel/?cluster=nimblefox", headers={"HX-Request": "true"}
    )
    assert marks(panel.content.decode())[0] == "Heartbeat late"
    title, details = problem_of("nimblefox", text_of(viewer, "/"))
    assert title == "nimblefox: heartbeat late"
    assert details.startswith("Credentials rejected.")
    MemberCluster.objects.filter(pk=row.pk).update(
        verdict="staleHeartbeat", verdict_reason="no recent heartbeat signals"
    )
    compare_all(now=datetime.now(UTC))
    assert problem_of("nimblefox", text_of(viewer, "/")) == (
        "nimblefox: not ready",
        "No recent heartbeat signals. Credentials rejected. Placed there: web.",
    )
    MemberCluster.objects.filter(pk=row.pk).update(verdict="", verdict_reason="")
    MemberCluster.objects.filter(pk=row.pk).update(unanswered_code="refused")
    ClusterCredential.objects.update(unauthorized_since=None)
    compare_all(now=datetime.now(UTC))
    title, details = problem_of("nimblefox", text_of(viewer, "/"))
    assert title == "nimblefox: heartbeat late"
    assert details.startswith("Connection refused.")


def test_drift_shows_member_and_hub(viewer: Client, text_of: Fetch) -> None:
    store(drifted_objects=[drift()], contested_since=NOW)
    page = text_of(viewer, PAGE)
    assert "/data/color" in page
    assert "&quot;green&quot;" in page
    assert "not set" in page
    assert "Contested since" in page
    assert "Drifted" in text_of(viewer, "/placements/web/")


def test_missing_answer_is_named_in_words(viewer: Client, text_of: Fetch) -> None:
    store(unavailable_code="http-429", message="slow down")
    assert "Too many requests (HTTP 429)" in text_of(viewer, PAGE)


def test_drift_page_filters(viewer: Client, text_of: Fetch) -> None:
    store(
        drifted_objects=[drift()], diffed_objects=[drift(name="other", generation=None)]
    )
    address = "/placements/web/drift/"
    everything = text_of(viewer, address)
    assert "shop/settings" in everything
    assert "shop/other" in everything
    assert "Missing" in everything
    assert "shop/other" not in text_of(viewer, f"{address}?type=Drift")
    assert "No drifted objects match" in text_of(viewer, f"{address}?path=/data/size")
    assert "Unsupported value" in text_of(viewer, f"{address}?type=all")
    assert "shop/settings" in text_of(viewer, f"{address}?after=x")


def test_objects_are_applied_again_after_a_confirmation(
    operator: Client, viewer: Client, text_of: Fetch
) -> None:
    store()
    address = "/placements/web/reapply/nimblefox/"
    assert "Apply web again on nimblefox?" in text_of(operator, address)
    assert viewer.post(address).status_code == 403
    assert operator.post(address).headers["Location"] == PAGE
    assert Binding.objects.get(cluster_name="nimblefox").phase == Phase.APPLYING
    refused = operator.post("/placements/web/reapply/moon/")
    assert refused.status_code == 409
    assert "nimblefox" in refused.content.decode()


def test_live_states_show_uid_since_and_reason(viewer: Client, text_of: Fetch) -> None:
    store(observed_at=NOW)
    row = [
        "",
        "Namespace",
        "",
        "shop",
        "uid-1",
        "notYet",
        "it is being deleted",
        "2 finalizers",
        NOW.isoformat(),
    ]
    ObservedObjects.objects.create(
        binding=Binding.objects.get(cluster_name="nimblefox"), rows=[row]
    )

    page = text_of(viewer, PAGE)

    for words in (
        "uid-1",
        "Not available",
        "it is being deleted",
        "2 finalizers",
        "Read on the cluster",
    ):
        assert words in page
    assert "Read now" not in page


def test_a_cluster_without_an_api_server_is_not_read(operator: Client) -> None:
    store()

    answer = operator.post(f"{PAGE}read/", follow=True)

    assert (
        "Objects not read: nimblefox has nothing of web that could be read."
        in answer.content.decode()
    )
