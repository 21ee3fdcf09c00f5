"""Filter: the required terms of the cluster affinity (`rules/scheduler.md#filters`)."""

from collections.abc import Mapping

from clusters.columns import Bools
from clusters.fleet import Fleet
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.engine.scheduling.selectors import (
    cel_test,
    label_requirements,
    label_test,
    match_any_term,
    meets_property,
    property_requirements,
)
from placements.manifests.affinity import ClusterSelectorTerm, LabelSelector


class AffinityFilter:
    """A cluster passes when it matches any required term, or when there is none."""

    name = "affinity"

    def passes(self, cycle: Cycle) -> Bools:
        return match_any_term(cycle.policy.required_terms, cycle.fleet).passes

    def reason(self, cycle: Cycle, position: int) -> Reason:
        """Return, term by term, the requirements that the cluster does not meet and its actual values."""
        terms = [
            _unmet(term, cycle.fleet, position) for term in cycle.policy.required_terms
        ]
        return Reason(ReasonCode.REQUIRED_AFFINITY, {"terms": terms})


def _unmet(
    term: ClusterSelectorTerm, fleet: Fleet, position: int
) -> list[dict[str, object]]:
    cluster = fleet.clusters[position]
    labels = _unmet_texts("label", term.label_selector, cluster.labels)
    claims = _unmet_texts("claim", term.claim_selector, cluster.properties)
    unmet_properties: list[dict[str, object]] = [
        {
            "property": requirement.name,
            "operator": str(requirement.operator),
            "values": list(requirement.values),
            "actual": fleet.property(requirement.name).texts[position],
        }
        for requirement in property_requirements(term)
        if not meets_property(requirement, fleet, only=position).all()
    ]
    unmet_cel: list[dict[str, object]] = [
        {"cel": text, "operator": "", "values": [], "actual": None}
        for text in term.cel_expressions
        if not cel_test([text])(cluster)
    ]
    return labels + claims + unmet_properties + unmet_cel


def _unmet_texts(
    sort: str, selector: LabelSelector | None, texts: Mapping[str, str]
) -> list[dict[str, object]]:
    return [
        {
            sort: requirement.key,
            "operator": str(requirement.operator),
            "values": list(requirement.values),
            "actual": texts.get(requirement.key),
        }
        for requirement in label_requirements(selector)
        if not label_test(requirement)(texts)
    ]
