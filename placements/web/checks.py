"""The checks: findings about the labels of the fleet and the policies of all placements."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_operators, for_readers
from placements.engine.checks.examination import ALIASES, RULES
from placements.engine.checks.file import NAME
from placements.engine.checks.findings import Finding, Fix, Severity, flat
from placements.explain.checks import LEVELS
from placements.models import Placement
from placements.services.assertions import save_checks_file, stored_file
from placements.services.checks import current_report, fixed_document
from placements.services.filters import LIST_FILTERS
from placements.web.badges import Badge
from placements.web.filter_bar import Facet, filter_bar, read_filters
from placements.web.request import actor, number_of, redirect_after

_ROWS_SHOWN, _MOST_ROWS_SHOWN, _LINKS_SHOWN = 10, 500, 5
_WORDS = {
    Severity.ERROR: "Error",
    Severity.WARNING: "Warning",
    Severity.INFO: "Information",
}


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding by cause: its placement, its severity, and how it can be fixed.

    `manifest` is that of the placement with the fix; `relabels` are links to changes of labels.
    """

    placement: Placement | None
    finding: Finding
    badge: Badge
    manifest: str
    relabels: list[tuple[str, str]]

    @property
    def title(self) -> str:
        return RULES[self.finding.rule].title


@for_readers
@costly
@require_safe
def checks(request: HttpRequest) -> HttpResponse:
    """Show the findings by cause, filtered by rule, severity or placement."""
    filters, report = read_filters(request, "checks"), current_report()
    findings = sorted(
        report.findings_of(
            filters["placement"], filters["rule"], filters["severity"], filters["q"]
        ),
        key=lambda pair: list(Severity).index(pair[1].severity),
    )
    most = _MOST_ROWS_SHOWN if "all" in request.GET else _ROWS_SHOWN
    names = {placement for placement, _ in findings[:most]}
    placements = {
        placement.full_name: placement
        for placement in Placement.objects.filter(full_name__in=names)
    }
    examined = [report.fleet, *report.placements.values()]
    rules = Counter(
        part.rule for _, finding in report.findings for part in flat([finding])
    )
    severities = Counter(finding.severity for _, finding in report.findings)
    facets = [
        Facet(
            "severity",
            "Severity",
            [
                (severity, _WORDS[severity], severities[severity])
                for severity in Severity
            ],
            is_row=True,
        ),
        Facet(
            "rule",
            "Rule",
            [
                (one, f"{one} {RULES[one].title}", count)
                for one, count in sorted(rules.items())
            ],
        ),
    ]
    return render_page(
        request,
        "checks/checks.html",
        {
            "bar": filter_bar(
                request,
                LIST_FILTERS["checks"],
                facets,
                rule=[*RULES, *ALIASES],
                severity=Severity,
            ),
            "rows": [
                _row(placements.get(placement), finding)
                for placement, finding in findings[:most]
            ],
            "more": max(0, len(findings) - most),
            "total": len(report.findings),
            "examined": len(report.placements),
            "muted": sum(examination.muted for examination in examined),
            "not_checked": sorted(
                {each for examination in examined for each in examination.not_checked}
            ),
        },
        fragment="checks/_list.html",
    )


@for_operators(f"change {NAME}")
@require_http_methods(["GET", "HEAD", "POST"])
def checks_file(request: HttpRequest) -> HttpResponse:
    row = stored_file()
    context: dict[str, Any] = {
        "text": row.text,
        "revision": row.revision,
        "errors": (),
    }
    if request.method != "POST":
        return render(request, "checks/file.html", context)
    context["text"] = request.POST.get("text", "").replace("\r\n", "\n")
    try:
        save_checks_file(
            context["text"],
            **actor(request),
            expected=number_of(request.POST.get("revision", ""), digits=18),
        )
    except InvalidManifest as invalid:
        context["errors"] = invalid.errors
        return render(request, "checks/file.html", context, status=422)
    except RevisionConflict:
        context["is_changed"] = True
        return render(request, "checks/file.html", context, status=409)
    return redirect_after(
        request, f"{NAME} saved. Its assertions are checked soon.", "web:checks"
    )


def _row(placement: Placement | None, finding: Finding) -> FindingRow:
    fix = finding.fix
    manifest = (
        dump_yaml(fixed_document(placement.document, fix))
        if placement and fix and fix.edits
        else ""
    )
    badge = Badge(LEVELS[finding.severity], _WORDS[finding.severity])
    return FindingRow(
        placement, finding, badge, manifest, _relabels(fix) if fix else []
    )


def _relabels(fix: Fix) -> list[tuple[str, str]]:
    """Return links to the preview of changes of labels: one for clusters that get the same."""
    changes = grouped((name, (key, value)) for name, key, value in fix.labels)
    groups = grouped((tuple(several), name) for name, several in changes.items())
    links = []
    for several_changes, names in list(groups.items())[:_LINKS_SHOWN]:
        query: dict[str, Any] = {
            "name": " ".join(names),
            "labels": "\n".join(
                f"{key}={value}" for key, value in several_changes if value is not None
            ),
            "remove": " ".join(key for key, value in several_changes if value is None),
            "do": "preview",
        }
        address = reverse("web:bulk-change", args=["labels"], query=query)
        links.append((counted(len(names), "cluster"), address))
    return links
