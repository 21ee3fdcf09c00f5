"""Rules about overrides: those whose rules select no cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import format_path
from placements.engine.checks.findings import Finding, Needs, Rule, Severity
from placements.engine.overrides import Override, idle_rule_warnings


@dataclass(frozen=True)
class OverridesOnFleet:
    fleet: Fleet
    overrides: Sequence[Override]


def override_name(override: Override) -> str:
    """Return the kind and full name: the first evidence of a finding."""
    return f"{override.kind} {override.full_name}"


def idle_rules(subject: OverridesOnFleet) -> Iterator[Finding]:
    for override in subject.overrides:
        for warning in idle_rule_warnings(override, subject.fleet):
            name = override_name(override)
            path = f"{format_path(('overrides', override.full_name))}.{warning.path}"
            yield O01.finding(path, f"{name}: {warning.message}.", (name, warning.path))


O01 = Rule(
    "O01",
    Severity.WARNING,
    Needs.OVERRIDES,
    "Override rule without a cluster",
    idle_rules,
)
OVERRIDES = (O01,)
