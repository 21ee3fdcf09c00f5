"""The address of every page, by its name in `urls.py`, for tests of all pages.

A page without a sample here fails the first test of `tests/browser/test_accessibility.py`.
"""

from datetime import datetime, timedelta

from django.contrib.auth.models import Permission, User

from clusters.drivers.base import KUBERNETES
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import new_member
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.access.tokens import create_token
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.models import Decision, Placement, Resource
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.evictions import evict
from placements.services.editor.operations import start_draft
from placements.services.loss.report import start_report
from placements.services.overrides.operations import save_override
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_strategy, start_run
from placements.web.activity import resource_url
from tests.clusters.kubernetes.certificates import authority
from tests.rows import decided
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import staged_spec, strategy_document

MOST_QUERIES = 15
"""So many queries any page runs at most, whatever the size of the fleet."""
SAMPLES = {
    "overview": "/",
    "search": "/search/?q=o",
    "inbox": "/inbox/",
    "overrides": "/overrides/",
    "override": "/overrides/ClusterResourceOverride/_/shelves/",
    "disruptions": "/disruptions/",
    "budget": "/disruptions/budgets/{placement}/",
    "eviction": "/disruptions/evictions/{eviction}/",
    "activity": "/activity/",
    "event": "/activity/{event}/",
    "help": "/help/semantics/",
    "documentation": "/help/documentation/guides/drain",
    "tokens": "/tokens/",
    "tokens-revoke": "/tokens/revoke/",
    "token-revoke": "/tokens/{token}/revoke/",
    "access-log": "/access-log/",
    "demo": "/demo/",
    "demo-remove": "/demo/remove/",
    "clusters": "/clusters/",
    "cluster-new": "/clusters/new/",
    "cluster-prepare": "/clusters/new/prepare/",
    "cluster-import": "/clusters/import/",
    "bulk-change": "/clusters/bulk/cordon/?name={cluster}",
    "cluster": "/clusters/{cluster}/",
    "cluster-labels": "/clusters/{cluster}/labels/",
    "cluster-properties": "/clusters/{cluster}/properties/",
    "cluster-events": "/clusters/{cluster}/events/",
    "cluster-yaml": "/clusters/{cluster}/yaml/",
    "cluster-edit": "/clusters/{cluster}/edit/",
    "cluster-cordon": "/clusters/{cluster}/cordon/",
    "cluster-uncordon": "/clusters/{cluster}/uncordon/",
    "cluster-leave": "/clusters/{cluster}/leave/",
    "cluster-inject-fault": "/clusters/{cluster}/inject-fault/",
    "cluster-connection": "/clusters/{connected}/connection/",
    "cluster-connection-edit": "/clusters/{connected}/connection/edit/?source=fields",
    "cluster-connection-remove": "/clusters/{connected}/connection/remove/",
    "placements": "/placements/",
    "placement-new": "/placements/new/",
    "placement": "/placements/{placement}/",
    "placement-decision": "/placements/{placement}/decision/",
    "placement-rollouts": "/placements/{placement}/rollouts/",
    "placement-resources": "/placements/{placement}/resources/",
    "placement-manifest": "/placements/{placement}/manifest/",
    "placement-edit": "/placements/{placement}/edit/",
    "placement-delete": "/placements/{placement}/delete/",
    "placement-reschedule": "/placements/{placement}/reschedule/",
    "placement-history": "/placements/{placement}/history/",
    "comparison": "/placements/{placement}/compare/p0..p1/",
    "placement-drift": "/placements/{placement}/drift/",
    "placement-cluster": "/placements/{placement}/clusters/{selected}/",
    "placement-reapply": "/placements/{placement}/reapply/{cluster}/",
    "placement-plan": "/placements/shelf/plan/",
    "placement-pause": "/placements/{placement}/pause/",
    "placement-resume": "/placements/{placement}/resume/",
    "placement-stop": "/placements/{placement}/stop/",
    "placement-start": "/placements/{placement}/start/",
    "placement-unpin": "/placements/{placement}/unpin/",
    "placement-roll-back": "/placements/{placement}/roll-back/",
    "placement-retry": "/placements/{placement}/retry/{cluster}/",
    "placement-retry-failed": "/placements/{placement}/retry-failed/",
    "rollouts": "/rollouts/",
    "rollout": "/rollouts/{placement}/1/",
    "rollout-clusters": "/rollouts/{placement}/1/clusters/",
    "rollout-events": "/rollouts/{placement}/1/events/",
    "rollout-plan": "/rollouts/{placement}/1/plan/",
    "staged-run-create": "/placements/shelf/staged-run/?strategy=careful",
    "staged-run-new": "/rollouts/staged/new-run/",
    "staged-run": "/rollouts/staged/runs/one/",
    "staged-run-resume": "/rollouts/staged/runs/one/resume/",
    "staged-run-approve": "/rollouts/staged/runs/one/approve/all/",
    "staged-run-pause": "/rollouts/staged/runs/one/pause/",
    "staged-run-abandon": "/rollouts/staged/runs/one/abandon/",
    "staged-run-skip-wait": "/rollouts/staged/runs/one/skip-wait/all/",
    "staged-run-retry": "/rollouts/staged/runs/one/retry/{cluster}/",
    "staged-run-retry-failed": "/rollouts/staged/runs/one/retry-failed/",
    "staged-strategies": "/rollouts/staged/strategies/",
    "staged-strategy-new": "/rollouts/staged/new-strategy/",
    "staged-strategy": "/rollouts/staged/strategies/careful/",
    "staged-strategy-edit": "/rollouts/staged/strategies/careful/edit/",
    "staged-strategy-delete": "/rollouts/staged/strategies/careful/delete/",
    "linked-preview": "/previews/?content="
    "eNo9jr0KwjAYRfc8xUfnWumaTdylqLiIQ5peJSRNQn4qUvruBmqdL-ecK7y6IUTlLCdvhM"
    "QImxqdewSLhLh7GiA1yu2nlmllB05Hk2NCOCO6HCS6jWIjkhhEEpxmK0ZwMspqDAuLHpIz"
    "ovBDLjCQyYXI6T6_gsueU1XVNG1PpramNXYqouhLoabV-Ua_PIrLO6Pkp6T-r68fX_ZOSX"
    "0wZmFfD2dN9Q==",
    "draft": "/drafts/{draft}/",
    "draft-review": "/drafts/{draft}/review/",
    "cluster-drain": "/clusters/{cluster}/drain/",
    "cluster-removals": "/clusters/{cluster}/removals/",
    "topology": "/topology/?key=region&key2=env",
    "what-if": "/what-if/",
    "checks": "/checks/",
    "resilience": "/what-if/resilience/",
    "checks-file": "/checks/file/",
    "decision-cluster": "/decisions/{decision}/clusters/{cluster}/",
    "decision": "/decisions/{decision}/?cluster={cluster}",
    "decision-semantics": "/decisions/{decision}/semantics/",
    "resources": "/resources/",
    "resource-apply": "/resources/apply/",
    "resource": "{resource}",
    "resource-delete": "{resource}delete/",
}
HUB_PAGES = {
    "hubs": "/hubs/",
    "hub-new": "/hubs/new/",
    "hub-about": "/hubs/{hub}/about/",
    "hub-credentials": "/hubs/{hub}/about/credentials/",
    "hub-remove": "/hubs/{hub}/about/remove/",
}
"""Pages about live hubs, which need one; `tests/browser/test_hub_pages.py` opens them."""
USER_PAGES = {"users": "/users/", "user": "/users/{user}/"}
"""Pages for superusers; `tests/web/test_users.py` opens them."""
NOTIFICATION_PAGES = {
    "notifications": "/notifications/",
    "notification-channel-new": "/notifications/channels/new/",
    "notification-channel": "/notifications/channels/chat/edit/",
    "notification-channel-delete": "/notifications/channels/chat/delete/",
    "notification-rule-new": "/notifications/rules/new/",
    "notification-rule": "/notifications/rules/payments/edit/",
    "notification-rule-delete": "/notifications/rules/payments/delete/",
}
"""Pages for superusers; `tests/browser/test_notification_pages.py` opens them."""
NO_PAGE = {
    *("notification-channel-test", "notification-channel-switch"),
    *(
        "demo-load",
        "placement-yaml",
        "comparison-select",
        "rollout-latest",
        "theme-set",
        "rows-set",
        "keys-set",
        "snooze",
        "undo-cluster-change",
        "map-panel",
    ),
    *(
        "draft-dry-run",
        "resource-dry-run",
        "placement-cluster-read",
        "access-log-export",
    ),
    *(
        "hub-check",
        "hub-pause",
        "hub-line",
        "hub-write",
        "draft-hub-write",
        "decision-hub",
        "metrics",
    ),
    *(
        "draft-completions",
        "draft-discard",
        "draft-rebase",
        "cluster-connection-check",
        "cluster-connection-renew",
    ),
}
"""Addresses that show nothing of their own: they redirect, return a file, or need a hub that decides."""


def sample_pages(
    *, cluster: str, placement: str, by: User, now: datetime
) -> dict[str, str]:
    """Return the address of each page, on a decided demo whose rollout has started.

    `by` is an operator, approver and cluster administrator, and has a draft. The pages of connections are
    those of a Kubernetes cluster that is added.
    """
    connected = _connect_cluster(now=now)
    _begin_staged_run(by=by, now=now)
    while sync_due_rollouts(now=now):
        pass
    start_report(by=by, now=now)
    row = Placement.objects.get(name=placement)
    draft = start_draft(dump_yaml(row.document), placement=row, by=by, now=now)
    decision = Decision.objects.filter(placement_name=placement).latest("number")
    things = {
        "cluster": cluster,
        "connected": connected,
        "placement": placement,
        "selected": row.bindings.earliest("cluster_name").cluster_name,
        "decision": decision.record.decision_id,
        "resource": resource_url(Resource.objects.earliest("pk")),
        "draft": draft.pk,
        "event": Event.objects.latest("pk").pk,
        "eviction": disruptions_of(placement, by=by, now=now),
        "token": _create_token(by, now=now),
    }
    return {name: address.format(**things) for name, address in SAMPLES.items()}


def disruptions_of(placement: str, *, by: User | None, now: datetime) -> int:
    """Make an override of nothing, a budget, and an eviction that changes nothing; return its number."""
    nothing = {"group": "", "version": "v1", "kind": "Namespace", "name": "nowhere"}
    save_override(
        for_clusters("shelves", rule(annotate(tier="2")), of=nothing), by=by, now=now
    )
    budget = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementDisruptionBudget",
        "metadata": {"name": placement},
        "spec": {"minAvailable": 1},
    }
    save_budget(budget, by=by, now=now)
    return evict("missing", "nowhere", by=by, now=now).pk


def _create_token(by: User, *, now: datetime) -> int:
    """Create an API token of the user, who may read the access log; return its number."""
    by.user_permissions.add(Permission.objects.get(codename="view_access_log"))
    there = by.api_tokens.first()  # users and tokens are those of all hubs
    return (
        there
        or create_token(
            by, name="deploy-pipeline", scopes=["read"], days=30, by=by, now=now
        )[0]
    ).pk


def _connect_cluster(*, now: datetime) -> str:
    """Add a Kubernetes cluster, which has rejected its token; return its name."""
    connection = {"server": "https://10.0.0.1:6443", "ca": authority().pem}
    document = new_member("connected")
    upsert_clusters(
        [ClusterSpec(document, driver=KUBERNETES, connection=connection)],
        by=None,
        now=now,
    )
    row = MemberCluster.objects.get(name="connected")
    ClusterCredential.objects.create(
        cluster=row,
        ciphertext="not readable",
        kind="token",
        subject="system:serviceaccount:fleetui-system:fleetui",
        fingerprint="0123456789abcdef",
        expires_at=now + timedelta(days=5),
        set_by="ana",
        set_at=now,
        unauthorized_since=now,
    )
    return row.name


def _begin_staged_run(*, by: User, now: datetime) -> None:
    """Advance a staged run of the placement `shelf` to its first approval."""
    stage = {
        "name": "all",
        "labelSelector": {},
        "beforeStageTasks": [{"type": "Approval"}],
    }
    save_strategy(strategy_document(stage), by=by, now=now)
    decided("shelf", staged_spec())
    start_run("one", placement="shelf", strategy="careful", by=by, now=now)
