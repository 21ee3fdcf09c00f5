"""Rows for tests, written short; all of them made by the operations of the product.

joined("a", region="east")                  a cluster in the fleet, eligible
saved("web", pick_n_spec(2))                a placement on the hub, not decided yet
decided("web", pick_n_spec(2))              the same after its first cycle
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import Group, User

from clusters.models import MemberCluster
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.access.models import SCOPES, ApiToken
from fleetui.access.tokens import create_token
from fleetui.apimachinery.yaml import dump_yaml
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement
from placements.services.assertions import save_checks_file
from placements.services.demo.load import load_demo
from placements.services.placements import save_placement
from placements.services.scheduling import schedule_due
from tests.database import load_once

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NAMESPACE = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}


def member_document(
    name: str, labels: Mapping[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    """Make a MemberCluster manifest without a status; `more` goes into its spec."""
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1",
        "kind": "MemberCluster",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"identity": {"kind": "User", "name": f"{name}-agent"}, **more},
    }


def joined(name: str, **labels: str) -> MemberCluster:
    """Join a cluster; it has no driver that observes it, so it is eligible."""
    upsert_clusters([ClusterSpec(member_document(name, labels))], by=None, now=NOW)
    return MemberCluster.objects.get(name=name)


def all_joined(*names: str) -> None:
    """Add several clusters without labels."""
    upsert_clusters(
        [ClusterSpec(member_document(name)) for name in names], by=None, now=NOW
    )


def simulated(
    name: str, *, fault: str | None = None, now: datetime = NOW, **labels: str
) -> MemberCluster:
    """Add a simulated cluster, which is observed from then on."""
    connection = {"fault": fault} if fault else {}
    wanted = ClusterSpec(
        member_document(name, labels), driver="simulated", connection=connection
    )
    upsert_clusters([wanted], by=None, now=now)
    return MemberCluster.objects.get(name=name)


def pick_n_spec(number: int, **policy: Any) -> dict[str, Any]:
    """Make the spec of a PickN placement of the namespace shop."""
    return spec({"placementType": "PickN", "numberOfClusters": number, **policy})


def spec(policy: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Make the spec of a placement of the namespace shop."""
    given = {} if policy is None else {"policy": dict(policy)}
    return {"resourceSelectors": [dict(NAMESPACE)], **given, **more}


def placement_document(
    name: str, spec: Mapping[str, Any], **annotations: str
) -> dict[str, Any]:
    """Make a ClusterResourcePlacement manifest; annotations are those of fleetui.io."""
    noted = {
        f"fleetui.io/{key.replace('_', '-')}": value
        for key, value in annotations.items()
    }
    metadata = {"name": name, **({"annotations": noted} if noted else {})}
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1",
        "kind": "ClusterResourcePlacement",
        "metadata": metadata,
        "spec": dict(spec),
    }


def assertion_entry(
    name: str, *asserted: Mapping[str, Any], **fields: Any
) -> dict[str, Any]:
    """Make an assertion of a checks file; its fields are as in YAML."""
    return {"name": name, **fields, "assert": [dict(document) for document in asserted]}


def checks_file(*entries: Mapping[str, Any]) -> str:
    """Make the text of a `.fleetui.yaml`."""
    return dump_yaml({"assertions": list(entries)})


def save_entries(*entries: Mapping[str, Any]) -> None:
    save_checks_file(checks_file(*entries), by=None, now=NOW)


def saved(name: str, spec: Mapping[str, Any], **annotations: str) -> Placement:
    """Save a placement; it is due, and not decided yet."""
    save_placement(placement_document(name, spec, **annotations), by=None, now=NOW)
    return Placement.objects.get(name=name)


def decided(name: str, spec: Mapping[str, Any], **annotations: str) -> Placement:
    """Save a placement and run what is due."""
    saved(name, spec, **annotations)
    run_due()
    return Placement.objects.get(name=name)


def run_due(*, after: timedelta = timedelta()) -> int:
    """Run the scheduling cycles that are due until none is."""
    total = 0
    while count := schedule_due(now=NOW + after):
        total += count
    return total


def load_nine() -> None:
    """Load the demo of nine clusters, decided; where the database is empty, only once in this process."""
    load_once("nine", lambda: load_demo(9, by=None, now=NOW))


def placed(placement: Placement) -> list[str]:
    """Return the clusters that a placement has, by name."""
    rows = Binding.objects.filter(placement=placement).exclude(
        state=BindingState.UNSCHEDULED
    )
    return list(rows.order_by("cluster_name").values_list("cluster_name", flat=True))


def person(name: str, *roles: str) -> User:
    """Make a user with these roles."""
    user = User.objects.create_user(name, password="a long enough password")
    user.groups.set(Group.objects.filter(name__in=roles))
    return user


def api_token(user: User, *scopes: str, now: datetime | None = None) -> str:
    """Create an API token of a user, by default with all scopes."""
    made = now or datetime.now(UTC)
    name = f"test {ApiToken.objects.count()}"
    return create_token(
        user, name=name, scopes=scopes or SCOPES, days=30, by=user, now=made
    )[1]


def namespace(name: str, **labels: str) -> dict[str, Any]:
    """Make a Namespace manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


def config_map(
    name: str, *, in_: str = "shop", data: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Make a ConfigMap manifest."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": in_},
        "data": dict(data or {}),
    }


def deployment(name: str, image: str, *, in_: str = "shop") -> dict[str, Any]:
    """Make a Deployment manifest."""
    labels = {"app": name}
    container = {"name": name, "image": image}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": in_},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container]},
            },
        },
    }
