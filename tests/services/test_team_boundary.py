"""The boundary of a team's grant: namespaces, kinds, clusters and what a placement may select."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client

from fleetui.access.models import TeamGrant
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.models import Placement, Resource
from placements.services.apply import apply_documents
from placements.services.dry_runs import dry_run_on_clusters
from placements.services.editor.operations import start_draft
from placements.services.overrides.operations import save_override
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources, delete_resource
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.operations import pause, resume, roll_back, unpin
from placements.services.rollouts.staged_runs import save_run, save_strategy
from tests.rows import (
    NOW,
    api_token,
    config_map,
    joined,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
)
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
POC = Path(__file__).parents[2] / "../shared/faults/security/poc-team-inject.yaml"
Document = dict[str, Any]
Change = Callable[[], object]


def of(team: str, document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "labels": {"team": team}}}


def role_binding(name: str, *, in_: str, verbs: str = "cluster-admin") -> Document:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": in_},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": verbs},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": group}],
    }


def outside(kind: str, name: str, *, version: str = "scheduling.k8s.io/v1") -> Document:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def envelope(*wrapped: Document, in_: str = "", name: str = "wrap") -> Document:
    kind = "ResourceEnvelope" if in_ else "ClusterResourceEnvelope"
    metadata = {"name": name, **({"namespace": in_} if in_ else {})}
    data = {f"object-{number}": document for number, document in enumerate(wrapped)}
    version = "placement.kubernetes-fleet.io/v1beta1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "data": data}


def placement(
    name: str, *selectors: Document, policy: Document | None = None
) -> Document:
    spec = {
        "resourceSelectors": list(selectors),
        **({"policy": policy} if policy else {}),
    }
    return placement_document(name, spec)


def select(kind: str, name: str = "", *, group: str = "", **labels: str) -> Document:
    wanted: Document = {"name": name} if name else {}
    if labels:
        wanted = {"labelSelector": {"matchLabels": labels}}
    return {"group": group, "version": "v1", "kind": kind, **wanted}


def requiring(*terms: Document, kind: str = "PickAll", **more: Any) -> Document:
    required = {"clusterSelectorTerms": [{"labelSelector": term} for term in terms]}
    affinity = {
        "clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return {"placementType": kind, "affinity": affinity, **more}


@pytest.fixture
def ben() -> User:
    """Return an operator of team=blue; there are two clusters and the namespaces of blue and red."""
    joined("west", zone="blue", stage="all")
    joined("east", zone="red", stage="all")
    ben = person("ben")
    group = Group.objects.create(name="blue")
    ben.groups.add(group)
    TeamGrant.objects.create(
        group=group, role="operator", key="team", value="blue", namespaces="blue-*"
    )
    other = Group.objects.create(name="red")
    TeamGrant.objects.create(group=other, role="operator", key="squad", value="red")
    apply_resources(
        [
            of("blue", namespace("ours")),
            of("red", namespace("shop")),
            {
                **namespace("blue-shared"),
                "metadata": {"name": "blue-shared", "labels": {"squad": "red"}},
            },
            namespace("blue-plain"),
            namespace("common"),
            of("blue", outside("PriorityClass", "ours")),
            of("red", outside("PriorityClass", "theirs")),
        ],
        by=None,
        now=NOW,
    )
    return ben


def grant(**columns: str) -> None:
    TeamGrant.objects.filter(value="blue").update(**columns)


def fresh(user: User) -> User:
    """Return the user as the next request reads it: grants are read once for each."""
    return User.objects.get(pk=user.pk)


def check_refused(change: Change, *reasons: str) -> None:
    with pytest.raises(PermissionDenied) as refusal:
        change()
    for reason in reasons:
        assert reason in str(refusal.value)


def apply(ben: User, *documents: Document) -> object:
    return apply_resources(
        [of("blue", document) for document in documents], by=fresh(ben), now=NOW
    )


def place(ben: User, *selectors: Document, policy: Document | None = None) -> object:
    document = of("blue", placement("mine", *selectors, policy=policy))
    return save_placement(document, by=fresh(ben), now=NOW)


@pytest.mark.skipif(not POC.is_file(), reason="needs ../shared")
@pytest.mark.parametrize(
    ("number", "reasons"),
    [
        (0, ["the namespace shop", "the kind rbac.authorization.k8s.io/RoleBinding"]),
        (1, ["the kind rbac.authorization.k8s.io/ClusterRoleBinding"]),
        (2, ["The grant of team=blue does not include the namespace shop."]),
    ],
)
def test_the_attacks_of_the_audit_are_refused(
    ben: User, number: int, reasons: list[str]
) -> None:
    document = load_documents(POC.read_text())[number]

    check_refused(lambda: apply_documents([document], by=ben, now=NOW), *reasons)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (config_map("a", in_="shop"), "the namespace shop"),
        (config_map("a", in_="common"), "the namespace common"),
        (config_map("a", in_="blue-shared"), "the namespace blue-shared"),
        (config_map("a", in_="kube-system"), "the namespace kube-system"),
        (namespace("green"), "the namespace green"),
        (
            role_binding("a", in_="ours"),
            "the kind rbac.authorization.k8s.io/RoleBinding",
        ),
        (outside("PriorityClass", "a"), "the kind scheduling.k8s.io/PriorityClass"),
        (outside("Widget", "a", version="x.example/v1"), "the kind x.example/Widget"),
        (
            envelope(role_binding("a", in_="ours"), in_="ours"),
            "the kind rbac.authorization.k8s.io/RoleBinding",
        ),
        (
            envelope(outside("PriorityClass", "a")),
            "the kind placement.kubernetes-fleet.io/ClusterResourceEnvelope",
        ),
    ],
)
def test_what_is_outside_of_the_grant_is_not_applied(
    ben: User, document: Document, reason: str
) -> None:
    before = Resource.objects.count()

    check_refused(
        lambda: apply(ben, document), "The grant of team=blue does not include", reason
    )

    assert Resource.objects.count() == before


def test_what_is_inside_of_the_grant_is_applied(ben: User) -> None:
    apply(ben, config_map("a", in_="ours"), config_map("a", in_="blue-plain"))
    apply(
        ben,
        namespace("blue-new"),
        config_map("a", in_="blue-new"),
        envelope(config_map("b", in_="ours"), in_="ours"),
    )
    grant(
        kinds="scheduling.k8s.io/PriorityClass rbac.authorization.k8s.io/* placement.kubernetes-fleet.io/*"
    )
    apply(
        ben,
        outside("PriorityClass", "a"),
        role_binding("a", in_="ours"),
        envelope(outside("PriorityClass", "b")),
    )

    assert Resource.objects.filter(labels={"team": "blue"}).count() == 10


def test_a_granted_envelope_wraps_no_namespace_of_another_team(ben: User) -> None:
    grant(kinds="*")

    check_refused(lambda: apply(ben, envelope(namespace("shop"))), "the namespace shop")


def test_a_namespaced_object_cannot_change_the_scope_of_a_kind_of_others(
    ben: User,
) -> None:
    apply_resources([outside("Widget", "a", version="x.example/v1")], by=None, now=NOW)
    widget = {
        **outside("Widget", "b", version="x.example/v1"),
        "metadata": {"name": "b", "namespace": "ours"},
    }

    check_refused(lambda: apply(ben, widget), "the kind x.example/Widget")


def test_what_others_left_in_the_namespace_is_not_changed(ben: User) -> None:
    binding = role_binding("theirs", in_="ours", verbs="view")
    apply_resources(
        [of("blue", binding), of("blue", config_map("a", in_="shop"))], by=None, now=NOW
    )

    check_refused(lambda: apply(ben, role_binding("theirs", in_="ours")), "RoleBinding")
    check_refused(
        lambda: delete_resource(("", "ConfigMap", "shop", "a"), by=ben, now=NOW),
        "namespace shop",
    )
    check_refused(
        lambda: delete_resource(("", "Namespace", "", "ours"), by=ben, now=NOW),
        "RoleBinding",
    )


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (select("Namespace", "shop"), "the namespace shop"),
        (select("Namespace", "missing"), "the namespace missing"),
        (select("Namespace", "blue-shared"), "the namespace blue-shared"),
        (select("Namespace"), "objects of kind Namespace without the label team=blue"),
        (
            select("Namespace", app="x"),
            "objects of kind Namespace without the label team=blue",
        ),
        (
            select("Namespace", team="red"),
            "objects of kind Namespace without the label team=blue",
        ),
        (
            select("PriorityClass", team="blue", group="scheduling.k8s.io"),
            "the kind scheduling.k8s.io/PriorityClass",
        ),
        (
            select("ClusterRole", "admin", group="rbac.authorization.k8s.io"),
            "ClusterRole admin without the label",
        ),
    ],
)
def test_a_placement_selects_only_what_is_of_the_team(
    ben: User, selector: Document, reason: str
) -> None:
    check_refused(lambda: place(ben, selector), reason)

    assert not Placement.objects.exists()


def test_a_placement_selects_what_is_of_the_team(ben: User) -> None:
    wanted = {"key": "team", "operator": "In", "values": ["blue"]}
    by_expression = {
        **select("Namespace"),
        "labelSelector": {"matchExpressions": [wanted]},
    }
    place(ben, select("Namespace", "ours"))
    place(ben, select("Namespace", "blue-later"))
    place(ben, select("Namespace", team="blue"))
    place(ben, by_expression)
    grant(kinds="scheduling.k8s.io/PriorityClass")
    place(ben, select("PriorityClass", "ours", group="scheduling.k8s.io"))
    check_refused(
        lambda: place(
            ben, select("PriorityClass", "theirs", group="scheduling.k8s.io")
        ),
        "PriorityClass theirs without the label team=blue",
    )


@pytest.mark.parametrize(
    ("clusters", "policy", "reason"),
    [
        (
            "west",
            {"placementType": "PickFixed", "clusterNames": ["west", "east"]},
            "the cluster east",
        ),
        (
            "zone=blue",
            {"placementType": "PickFixed", "clusterNames": ["east"]},
            "the cluster east",
        ),
        (
            "w*",
            {"placementType": "PickFixed", "clusterNames": []},
            "all clusters that were selected before",
        ),
        ("zone=blue", {"placementType": "PickAll"}, "included: zone=blue"),
        ("zone=blue", requiring({"matchLabels": {"zone": "red"}}), "in each term"),
        (
            "zone=blue",
            requiring(
                {"matchLabels": {"zone": "blue"}}, {"matchLabels": {"tier": "a"}}
            ),
            "in each term",
        ),
        ("west", {"placementType": "PickN", "numberOfClusters": 1}, "PickFixed"),
        (
            "zone=blue",
            requiring(
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "In", "values": ["blue", "red"]}
                    ]
                }
            ),
            "in each term",
        ),
        (
            "zone=blue",
            requiring(
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "NotIn", "values": ["red"]}
                    ]
                }
            ),
            "in each term",
        ),
    ],
)
def test_a_placement_selects_only_clusters_of_the_grant(
    ben: User, clusters: str, policy: Document, reason: str
) -> None:
    grant(clusters=clusters)

    check_refused(
        lambda: place(ben, select("Namespace", "ours"), policy=policy), reason
    )


@pytest.mark.parametrize(
    ("clusters", "policy"),
    [
        ("", {"placementType": "PickAll"}),
        ("w* zone=blue", {"placementType": "PickFixed", "clusterNames": ["west"]}),
        ("zone=blue", {"placementType": "PickFixed", "clusterNames": ["west"]}),
        ("zone=blue", requiring({"matchLabels": {"zone": "blue", "tier": "a"}})),
        (
            "zone=blue",
            requiring(
                {"matchLabels": {"zone": "blue"}}, kind="PickN", numberOfClusters=1
            ),
        ),
        (
            "zone=blue zone=red",
            requiring(
                {
                    "matchExpressions": [
                        {"key": "zone", "operator": "In", "values": ["blue", "red"]}
                    ]
                }
            ),
        ),
    ],
)
def test_a_placement_selects_clusters_of_the_grant(
    ben: User, clusters: str, policy: Document
) -> None:
    grant(clusters=clusters)

    place(ben, select("Namespace", "ours"), policy=policy)


def test_a_placement_outside_of_the_grant_is_only_stopped_deleted_or_brought_back(
    ben: User,
) -> None:
    document = of(
        "blue",
        placement(
            "mine", select("Namespace", "shop"), policy={"placementType": "PickAll"}
        ),
    )
    save_placement(document, by=None, now=NOW)
    run_due()

    check_refused(
        lambda: save_placement(document, by=ben, now=NOW), "the namespace shop"
    )
    check_refused(
        lambda: dry_run_on_clusters(placement="mine", by=ben, now=NOW),
        "the namespace shop",
    )
    pause("mine", by=ben, now=NOW)
    check_refused(lambda: resume("mine", by=ben, now=NOW), "the namespace shop")
    place(ben, select("Namespace", "ours"), policy={"placementType": "PickAll"})
    resume("mine", by=ben, now=NOW)
    delete_placement("mine", by=ben, now=NOW)


def test_a_rollback_restores_nothing_outside_of_the_grant(ben: User) -> None:
    apply(ben, config_map("a", in_="ours", data={"n": "1"}))
    binding = role_binding("a", in_="ours")
    apply_resources([binding], by=None, now=NOW)
    place(ben, select("Namespace", "ours"))
    run_due()
    apply(ben, config_map("a", in_="ours", data={"n": "2"}))
    run_due()
    roll_back("mine", 0, by=ben, now=NOW)
    unpin("mine", by=ben, now=NOW)
    delete_resource(
        ("rbac.authorization.k8s.io", "RoleBinding", "ours", "a"), by=None, now=NOW
    )
    run_due()

    check_refused(lambda: roll_back("mine", 0, by=ben, now=NOW), "RoleBinding")


def test_a_staged_run_restores_nothing_outside_of_the_grant(ben: User) -> None:
    apply_resources([role_binding("a", in_="ours")], by=None, now=NOW)
    selectors = {"resourceSelectors": [select("Namespace", "ours")]}
    save_placement(
        of("blue", placement_document("mine", {**staged_spec(), **selectors})),
        by=ben,
        now=NOW,
    )
    save_strategy(of("blue", strategy_document(stage("all"))), by=ben, now=NOW)
    run_due()
    save_run(run_document("first", placementName="mine"), by=ben, now=NOW)
    sync_due_rollouts(now=NOW)
    apply_resources([role_binding("a", in_="ours", verbs="view")], by=None, now=NOW)
    run = run_document("one", placementName="mine", resourceSnapshotIndex="0")

    check_refused(lambda: save_run(run, by=ben, now=NOW), "RoleBinding")


def patch(path: str, value: Any, **target: str) -> Document:
    wanted = {
        "group": "",
        "version": "v1",
        "kind": "Namespace",
        "name": "ours",
        **target,
    }
    replaced = {"op": "add", "path": path, "value": value}
    return of(
        "blue",
        for_clusters(
            "mine",
            {**rule(annotate(tier="1")), "jsonPatchOverrides": [replaced]},
            of=wanted,
        ),
    )


@pytest.mark.parametrize(
    "path", ["/subjects", "/roleRef/name", "/rules", "/data/object-0/kind"]
)
def test_an_override_of_a_namespace_writes_no_rights(ben: User, path: str) -> None:
    check_refused(
        lambda: save_override(patch(path, "x"), by=ben, now=NOW), "every kind (*)"
    )


def test_an_override_patches_only_what_is_of_the_team(ben: User) -> None:
    save_override(patch("/metadata/labels/a", "b"), by=ben, now=NOW)
    apply_resources([role_binding("theirs", in_="ours")], by=None, now=NOW)

    check_refused(
        lambda: save_override(patch("/metadata/labels/a", "c"), by=ben, now=NOW),
        "RoleBinding",
    )
    target = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "ours"}
    check_refused(
        lambda: save_override(patch("/value", 1, **target), by=ben, now=NOW),
        "the kind scheduling.k8s.io/PriorityClass",
    )


def test_one_grant_has_to_include_all_of_a_change(ben: User) -> None:
    group = Group.objects.get(name="blue")
    TeamGrant.objects.filter(value="blue").delete()
    for role, columns in (
        ("operator", {"namespaces": "a"}),
        ("approver", {"namespaces": "shop", "kinds": "*"}),
    ):
        TeamGrant.objects.create(
            group=group, role=role, key="team", value="blue", **columns
        )

    check_refused(
        lambda: apply(ben, outside("PriorityClass", "a")),
        "the kind scheduling.k8s.io/PriorityClass",
    )


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"namespaces": "Shop"}, "namespaces"),
        ({"namespaces": "a/b"}, "namespaces"),
        ({"namespaces": "[a-b]*"}, "namespaces"),
        ({"namespaces": "a a"}, "namespaces"),
        ({"kinds": "a/b/C"}, "kinds"),
        ({"kinds": "/Role"}, "kinds"),
        ({"clusters": "=east"}, "clusters"),
        ({"clusters": "region="}, "clusters"),
        ({"clusters": "a=b=c"}, "clusters"),
        ({"clusters": " ".join(f"c{number}" for number in range(101))}, "clusters"),
    ],
)
def test_patterns_that_match_nothing_are_refused(
    columns: dict[str, str], field: str
) -> None:
    row = TeamGrant(
        group=Group.objects.create(name="blue"),
        role="operator",
        key="team",
        value="blue",
    )
    for name, text in columns.items():
        setattr(row, name, text)

    with pytest.raises(ValidationError) as invalid:
        row.full_clean()

    assert list(invalid.value.message_dict) == [field]


def test_patterns_that_are_allowed() -> None:
    group = Group.objects.create(name="blue")
    TeamGrant(
        group=group,
        role="operator",
        key="team",
        value="blue",
        namespaces="a blue-*\n*-b",
        kinds="* Node PersistentVolume apps/* rbac.authorization.k8s.io/Role",
        clusters="edge-* region=east topology.kubernetes.io/zone=a",
    ).full_clean()


def test_a_number_of_clusters_is_no_way_around(ben: User) -> None:
    grant(clusters="zone=blue")
    document = placement_document(
        "mine", {**pick_n_spec(2), "resourceSelectors": [select("Namespace", "ours")]}
    )

    check_refused(
        lambda: save_placement(of("blue", document), by=ben, now=NOW),
        "included: zone=blue",
    )


def test_a_review_says_what_the_grant_does_not_include(ben: User) -> None:
    document = of("blue", placement("mine", select("Namespace", "shop")))
    draft = start_draft(dump_yaml(document), placement=None, by=ben, now=NOW)
    client = Client()
    client.force_login(ben)

    page = client.get(f"/drafts/{draft.pk}/review/").content.decode()
    preview = Client().post(
        "/api/v1/placements/preview",
        json.dumps(document),
        content_type="application/json",
        headers={"Authorization": f"Token {api_token(ben)}"},
    )

    reason = "The grant of team=blue does not include the namespace shop."
    assert reason in page
    warnings = [
        warning["message"]
        for warning in preview.json()["warnings"]
        if warning["code"] == "forbidden"
    ]
    assert len(warnings) == 1
    assert reason in warnings[0]


def test_the_page_of_a_user_shows_the_grants(ben: User, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root", password="x"))
    grant(kinds="apps/*", clusters="zone=blue")

    page = client.get(f"/users/{ben.pk}/").content.decode()

    assert all(
        text in page
        for text in ("team=blue", "With the label, blue-*", "apps/*", "zone=blue")
    )
