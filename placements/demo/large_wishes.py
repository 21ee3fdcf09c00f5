"""Placements for the large fleets: every type and sort of rule, some that cannot be fulfilled among them."""

from collections.abc import Iterator, Sequence

from placements.demo.demo import Document, name_of
from placements.demo.large_fleet import DEDICATED, GPU
from placements.demo.members import CPU_COST, NODES
from placements.demo.wishes import (
    ANYTHING,
    expressions,
    labelled,
    measured,
    pick_all,
    pick_fixed,
    pick_n,
    placement,
    prefer,
    rolling,
    selector,
    sorted_by,
    spread,
    tolerate,
)
from placements.scheduling.spec import SEMANTICS_ANNOTATION, SPREAD_OPTIONS_ANNOTATION

LEFT_THE_FLEET = "gonewalrus"
"""A cluster that a PickFixed placement still names."""

_CPU_FREE, _CPU_ALL = "resources.kubernetes-fleet.io/available-cpu", "resources.kubernetes-fleet.io/total-cpu"
_MEMORY_FREE = "resources.kubernetes-fleet.io/available-memory"
_PROD, _EDGE, _CORE = labelled(env="prod"), labelled(tier="edge"), labelled(tier="core")
_CHEAP, _ROOMY = sorted_by(CPU_COST, "Ascending"), sorted_by(_CPU_FREE, "Descending")
_OCM, _KUBERNETES = {SEMANTICS_ANNOTATION: "ocm"}, {SEMANTICS_ANNOTATION: "kubernetes"}
_DEDICATED = labelled(team="payments")
_MODERN = expressions(("kubernetes-version", "In", "v1.33", "v1.34"))


def wishes_for_hundred(clusters: Sequence[Document]) -> tuple[Document, ...]:
    """Write the placements of the fleet of 100."""
    return tuple(_common(clusters, many=1))


def wishes_for_thousands(clusters: Sequence[Document]) -> tuple[Document, ...]:
    """Write the placements of the fleet of 5,000: the same, larger, and more."""
    return (*_common(clusters, many=12), *_spread_ones(), *_preferring_ones(), *_choosing_ones(clusters))


def _common(clusters: Sequence[Document], *, many: int) -> Iterator[Document]:
    """Write nine placements; `payments` has a pinned group, `lab-replicas` comes to a dead end."""
    budget = rolling("10%", "10%", 30)
    crd = selector("CustomResourceDefinition", group="apiextensions.k8s.io", labels={"part-of": "monitoring"})
    monitoring = [selector("Namespace", "monitoring"), crd]
    yield placement("monitoring", pick_all(tolerations=[ANYTHING]), selectors=monitoring, strategy=budget)
    soft, providers = spread("region", hard=False), spread("provider", 2 * many)
    shop = pick_n(12 * many, required=[_PROD], prefer=[prefer(30, _CHEAP)], spread=[soft, providers])
    yield placement("storefront", shop, strategy=rolling("25%", "10%", 60))
    yield placement("payments", pick_n(18 * many, required=[_PROD], spread=[spread("region")]))
    caches = pick_n(
        9 * many, required=[_EDGE], prefer=[prefer(50, _ROOMY)], spread=[spread("provider", many)]
    )
    yield placement("edge-cache", caches, strategy={"type": "External"})
    yield placement(
        "inference", pick_all(required=[labelled(accelerator="gpu")], tolerations=[tolerate(*GPU)])
    )
    rack, power = spread("rack"), spread("power")
    yield placement("lab-replicas", pick_n(4, required=[labelled(tier="lab")], spread=[rack, power]))
    yield placement("archive", pick_fixed(*_settled(clusters)[: 4 * min(many, 6)]))
    living = expressions(("env", "In", "prod", "staging"))
    even = spread("region", 2, minDomains=3, nodeTaintsPolicy="Honor")
    index = pick_n(10 * many, required=[{**living, **measured(NODES, "Ge", "3")}], spread=[even])
    yield placement("search-index", index, annotations=_KUBERNETES)
    strict = {**_OCM, SPREAD_OPTIONS_ANNOTATION: '{"mode": "strict", "unsetPolicy": "exclude"}'}
    mobile = pick_n(8 * many, required=[_MODERN], spread=[spread("region", 1), spread("env", 4, hard=False)])
    yield placement("mobile-api", mobile, annotations=strict)


def _spread_ones() -> Iterator[Document]:
    """Write placements that are mostly about spreading."""
    provider, team = spread("provider", 20), spread("team", 10)
    yield placement("checkout", pick_n(140, required=[_PROD], spread=[provider, team]))
    yield placement("sessions", pick_n(300, spread=[spread("region", 10), spread("env", 5, hard=False)]))
    near = [spread("region", 4, hard=False), spread("zone", 2, hard=False)]
    yield placement("thumbnails", pick_n(200, required=[_CORE], spread=near))
    yield placement("feature-flags", pick_n(120, spread=[spread("kubernetes-version", 3)]))
    two_keys = [spread("kubernetes-version", 40), spread("provider", 30)]
    yield placement("telemetry-gateway", pick_n(160, required=[_EDGE, _CORE], spread=two_keys))
    apart = pick_n(90, required=[_PROD], spread=[spread("zone", hard=False)])
    yield placement("dns", apart, annotations=_KUBERNETES)


def _preferring_ones() -> Iterator[Document]:
    """Write placements that are mostly about what is preferred."""
    yield placement("batch-reports", pick_n(60, prefer=[prefer(100, _CHEAP)], required=[_CORE]))
    rather_data = [prefer(40, labelled(team="data")), prefer(-30, labelled(env="canary")), prefer(20, _ROOMY)]
    yield placement("feature-store", pick_n(80, prefer=rather_data, spread=[spread("provider", 40)]))
    memory = [prefer(60, sorted_by(_MEMORY_FREE, "Descending")), prefer(25, _MODERN)]
    yield placement("recommendations", pick_n(50, required=[measured(_CPU_FREE, "Ge", "64")], prefer=memory))
    small = [prefer(30, sorted_by(NODES, "Ascending")), prefer(10, _EDGE)]
    yield placement(
        "smoke-tests", pick_n(40, required=[labelled(env="test"), labelled(env="canary")], prefer=small)
    )


def _choosing_ones(clusters: Sequence[Document]) -> Iterator[Document]:
    """Write placements that are mostly about who may be chosen; one names a cluster that left."""
    yield placement("card-vault", pick_all(required=[_DEDICATED], tolerations=[tolerate(*DEDICATED)]))
    large = {**_CORE, **measured(_CPU_ALL, "Ge", "2000")}
    yield placement("warehouse", pick_all(required=[large]))
    yield placement("licences", pick_fixed(*_settled(clusters)[-7:], LEFT_THE_FLEET))
    old = expressions(("kubernetes-version", "In", "v1.31"), ("env", "NotIn", "prod"))
    yield placement("upgrade-checks", pick_all(required=[old]))
    own = pick_n(30, required=[labelled(provider="own")], spread=[spread("zone", 2, hard=False)])
    yield placement("badge-printing", own)
    anywhere = pick_n(
        25, required=[labelled(team="media")], prefer=[prefer(50, _ROOMY)], tolerations=[ANYTHING]
    )
    yield placement("transcoding", anywhere)


def _settled(clusters: Sequence[Document]) -> list[str]:
    """Give the clusters that the settled sort of placement names: sound ones in production, by name."""
    return sorted(
        name_of(one)
        for one in clusters
        if one["metadata"]["labels"].get("env") == "prod"
        and "taints" not in one["spec"]
        and "annotations" not in one["metadata"]
    )
