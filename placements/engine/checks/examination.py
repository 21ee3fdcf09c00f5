"""The registry of the rules, and the examination of a fleet and of a placement by them."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clusters.fleet import EligibilityKind, Fleet
from fleetui.apimachinery.errors import ManifestWarning
from placements.engine.checks.affinity import AFFINITY
from placements.engine.checks.asserted import ASSERTED
from placements.engine.checks.change import GATES
from placements.engine.checks.findings import (
    OF_PLACEMENT,
    Case,
    Finding,
    Needs,
    NotCheckedError,
    Rule,
    Severity,
    joined,
)
from placements.engine.checks.hygiene import HYGIENE
from placements.engine.checks.overrides import OVERRIDES, OverridesOnFleet
from placements.engine.checks.placement import PLACEMENT
from placements.engine.checks.spread import SPREAD
from placements.engine.overrides import Override
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.warnings import hub_warnings

_TABLE = (
    *HYGIENE,
    *OVERRIDES,
    *SPREAD,
    *AFFINITY,
    *PLACEMENT,
    *ASSERTED,
    *GATES.values(),
)
RULES: dict[str, Rule] = {rule.id: rule for rule in _TABLE}
ALIASES = {
    "unknown-key": ("S01", "A01"),
    "unknown-property": ("A01",),
    "single-group": ("S02",),
    "clusters-lack-key": ("S06",),
    "matches-nothing": ("A03", "A04", "O01"),
    "not-read": ("A05",),
    "overlap": ("N05",),
    "zero-max-unavailable": ("R01",),
    "not-a-quantity": ("H07",),
    "malformed-property": ("H07",),
    "assertion-broken": ("P01",),
    **{gate: (rule.id,) for gate, rule in GATES.items()},
}
"""The rules for each code of a warning, and for each gate."""
OF_WARNINGS = ("S01", "S02", "S06", "A01", "A03", "A05")
"""The rules whose findings are warnings of a manifest, too, also of an incomplete draft."""
_DOWN = frozenset(EligibilityKind) - {EligibilityKind.LEAVING}
_OF_EFFECT = ("S07", "A04", "T03")
_FAMILIES = "HASTNRFOPG"


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings by cause, the number that was muted, and the rules that were not checked.

    `errors` are those of rules that failed: they never break a page, and the caller logs them.
    """

    findings: tuple[Finding, ...]
    muted: int = 0
    not_checked: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()


def rules_named(names: Iterable[str]) -> frozenset[str]:
    return frozenset(rule for name in names for rule in ALIASES.get(name, (name,)))


def rank(rule: str) -> tuple[int, str]:
    """Return the place of a rule among those of one cause: the first is the cause."""
    return _FAMILIES.index(rule[0]), rule


def examine_fleet(
    fleet: Fleet, overrides: Sequence[Override] = (), *, muted: Collection[str] = ()
) -> Examination:
    """Check what belongs to no placement: the labels of a fleet, and overrides on it."""
    labels = _examine(HYGIENE, fleet, muted)
    others = _examine(OVERRIDES, OverridesOnFleet(fleet, overrides), muted)
    return Examination(
        (*labels.findings, *others.findings),
        labels.muted + others.muted,
        (*labels.not_checked, *others.not_checked),
        (*labels.errors, *others.errors),
    )


def fleet_warnings(cycle: Cycle) -> tuple[ManifestWarning, ...]:
    """Return what does not match between a policy and a fleet, as the rules find it."""
    if not len(cycle.fleet):
        return (ManifestWarning("empty-fleet", "policy", "the fleet has no cluster"),)
    case = Case(replace(cycle, bindings=()))
    findings = (finding for rule in OF_WARNINGS for finding in RULES[rule].check(case))
    warnings = tuple(
        ManifestWarning(
            finding.code, finding.path.removeprefix("spec."), finding.message
        )
        for finding in findings
    )
    if not profile_of(cycle).has_hub_objects:
        return warnings
    return (*warnings, *hub_warnings(cycle))


def examine_placement(
    case: Case,
    hygiene: Iterable[Finding] = (),
    *,
    muted: Collection[str] = (),
    needs: Collection[Needs] = OF_PLACEMENT,
) -> Examination:
    """Check a placement; findings about the fleet that are the cause of others come with them.

    Without clusters only the rules that read the policy alone are checked, and what they find is information.
    `needs` limits the rules to those that read no more. While a cluster is down, no change of the policy is
    proposed.
    """
    rules = [rule for rule in RULES.values() if rule.needs in needs]
    if not len(case.fleet):
        examination = _examine(
            [rule for rule in rules if rule.needs is Needs.POLICY], case, muted
        )
        findings = tuple(
            replace(finding, severity=Severity.INFO) for finding in examination.findings
        )
        return replace(examination, findings=findings)
    examination = _examine(rules, case, muted)
    own = {finding.rule for finding in examination.findings}
    roots = joined([*hygiene, *_without_repetition(examination.findings)], rank)
    kept = (root for root in roots if root.rule in own or root.caused)
    order = list(Severity)
    worst_first = sorted(
        kept, key=lambda one: (order.index(one.severity), rank(one.rule), one.path)
    )
    if any(cluster.eligibility.kind in _DOWN for cluster in case.fleet):
        worst_first = [_without_policy_change(finding) for finding in worst_first]
    return replace(examination, findings=tuple(worst_first))


def _without_policy_change(finding: Finding) -> Finding:
    """Remove the fixes that edit the policy: what is missing while a cluster is down may be back soon."""
    fix = finding.fix
    if fix and any(path[0] == "policy" for path, _ in fix.edits):
        fix = None
    caused = tuple(_without_policy_change(other) for other in finding.caused)
    return replace(finding, fix=fix, caused=caused)


def _without_repetition(findings: Iterable[Finding]) -> list[Finding]:
    """Remove the finding that a part has no effect today where another rule has its reason."""
    several = list(findings)
    explained = {
        pair
        for finding in several
        if finding.rule not in _OF_EFFECT
        for pair in finding.evidence
    }
    return [
        finding
        for finding in several
        if finding.rule not in _OF_EFFECT or explained.isdisjoint(finding.evidence)
    ]


def _examine(
    rules: Iterable[Rule], subject: Any, muted: Collection[str]
) -> Examination:
    findings: list[Finding] = []
    not_checked, errors, hidden = [], list[Exception](), 0
    for rule in rules:
        try:
            of_rule = list(rule.check(subject))
        except NotCheckedError:
            not_checked.append(rule.id)
            continue
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # a rule that fails must not break the page
            error.add_note(f"in rule {rule.id} of the checks")
            errors.append(error)
            not_checked.append(rule.id)
            continue
        if rule.id in muted:
            hidden += len(of_rule)
        else:
            findings += of_rule
    return Examination(tuple(findings), hidden, tuple(not_checked), tuple(errors))
