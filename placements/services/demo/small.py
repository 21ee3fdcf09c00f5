"""The demos of four and of nine clusters, small enough to follow step by step."""

from datetime import datetime, timedelta

from placements.services.demo.model import (
    Demo,
    Document,
    HistoryStep,
    application,
    cluster_role,
    expressions,
    labelled,
    member,
    name_of,
    pick_all,
    pick_fixed,
    pick_n,
    placement,
    prefer,
    rolling,
    selector,
    spread,
)

_LABELS = {
    "bravelion": {"region": "east", "system": "critical"},
    "smartfish": {"region": "east"},
    "jumpingcat": {"region": "west", "system": "critical"},
    "flyingpenguin": {"region": "west"},
}
_SYSTEM = ("system", "Exists")


def four(now: datetime) -> Demo:
    west = prefer(20, labelled(region="west"))
    east_with_system = (
        labelled(region="east")["labelSelector"] | expressions(_SYSTEM)["labelSelector"]
    )
    policies = {
        "fixed": pick_fixed("bravelion", "smartfish"),
        "critical": pick_all(required=[labelled(system="critical")]),
        "critical-or-standard": pick_all(
            required=[expressions(("system", "In", "critical", "standard"))]
        ),
        "east-with-system": pick_all(required=[{"labelSelector": east_with_system}]),
        "west-or-without-system": pick_all(
            required=[labelled(region="west"), expressions(("system", "DoesNotExist"))]
        ),
        "rather-west": pick_n(2, prefer=[west]),
        "system-rather-west": pick_n(1, required=[expressions(_SYSTEM)], prefer=[west]),
        "even-by-region": pick_n(2, spread=[spread("region")]),
        "even-by-system": pick_n(3, spread=[spread("system", 2)]),
    }
    role = selector("ClusterRole", "secretReader", group="rbac.authorization.k8s.io")
    applications = (application(name) for name in policies if name != "fixed")
    return Demo(
        "The guide's fleet of 4",
        tuple(member(name, labels, now=now) for name, labels in _LABELS.items()),
        (
            *(document for documents in applications for document in documents),
            cluster_role("secretReader", "secrets"),
        ),
        tuple(
            placement(name, policy, selectors=[role] if name == "fixed" else [])
            for name, policy in policies.items()
        ),
    )


_REGIONS = {
    "east": "bravelion smartfish amberotter",
    "west": "jumpingcat flyingpenguin quietheron",
    "north": "nimblefox oldbadger",
    "south": "palemoth",
}
_CANARIES = frozenset({"smartfish", "flyingpenguin", "oldbadger"})
_CRITICAL = frozenset({"bravelion", "jumpingcat", "quietheron", "nimblefox"})
_EDGE = frozenset({"amberotter", "palemoth"})
_MARKS = (("system", "critical", _CRITICAL), ("tier", "edge", _EDGE))
_EDGE_ONCE = "flyingpenguin"
_LAST_TO_JOIN = "palemoth"
_UNPLACED = "hello"
"""The namespace that no placement selects, so that the first one of a user finds what it can own."""


def nine(now: datetime) -> Demo:
    """Return the demo of nine with a history of three hours."""
    clusters = []
    for region, names in _REGIONS.items():
        for name in names.split():
            labels = {
                "region": region,
                "env": "canary" if name in _CANARIES else "prod",
                **{key: value for key, value, some in _MARKS if name in some},
            }
            clusters.append(member(name, labels, now=now))
    role = cluster_role("config-reader", "configmaps")
    selectors = [
        selector("Namespace", "config"),
        selector("ClusterRole", "config-reader", group="rbac.authorization.k8s.io"),
    ]
    config = placement(
        "config",
        pick_fixed("nimblefox", "bravelion", "quietheron"),
        selectors=selectors,
    )
    applications = (
        application(name)
        for name in ("web", "ledger", "cache", "batch", "config", _UNPLACED)
    )
    return Demo(
        "Nine clusters in four regions",
        tuple(clusters),
        (*(document for documents in applications for document in documents), role),
        (_web(), _ledger(4), _cache(), config, placement("batch", pick_all())),
        _history({name_of(cluster): cluster for cluster in clusters}, now),
    )


def _history(clusters: dict[str, Document], now: datetime) -> tuple[HistoryStep, ...]:
    """Return the past: it ends with an edit of `web`, and `cache` keeps a cluster that lost its label."""
    lost, joined = clusters[_EDGE_ONCE], clusters[_LAST_TO_JOIN]
    metadata = lost["metadata"]
    labels = {**metadata["labels"], "tier": "edge"}
    labelled_before = {**lost, "metadata": {**metadata, "labels": labels}}
    steps = (
        (157, "ana", f"{_LAST_TO_JOIN} joined", None, joined),
        (150, "ana", "web created", None, _web(with_env=False)),
        (140, "li", "cache created", None, _cache()),
        (120, "li", f"{_EDGE_ONCE} lost tier=edge", labelled_before, lost),
        (20, "li", "numberOfClusters 3 → 4", _ledger(3), _ledger(4)),
        (6, "ana", "env spread added", _web(with_env=False), _web()),
    )
    return tuple(
        HistoryStep(now - timedelta(minutes=minutes), who, why, before, after)
        for minutes, who, why, before, after in steps
    )


def _web(*, with_env: bool = True) -> Document:
    env = [spread("env", 2, hard=False)] if with_env else []
    critical, canary = (
        prefer(20, labelled(system="critical")),
        prefer(-10, labelled(env="canary")),
    )
    policy = pick_n(5, spread=[spread("region"), *env], prefer=[critical, canary])
    return placement("web", policy, strategy=rolling("25%", "25%", 60))


def _ledger(number: int) -> Document:
    policy = pick_n(
        number, required=[labelled(system="critical")], spread=[spread("region")]
    )
    return placement("ledger", policy)


def _cache() -> Document:
    return placement(
        "cache", pick_n(3, required=[labelled(tier="edge")], spread=[spread("region")])
    )
