"""The editor: form and YAML over one draft, with a preview of every change."""

import re
from typing import Any

import pytest
from django.test import Client

from clusters.models import MemberCluster
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.models import Draft, Placement, Resource
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from tests.rows import (
    NOW,
    decided,
    joined,
    namespace,
    person,
    pick_n_spec,
    placement_document,
)
from tests.web.reading import Outline, page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

NEW, EDIT = "/placements/new/", "/placements/web/edit/"
SELECTOR = "spec.resourceSelectors[0]"
ROW = {"add": "spec.resourceSelectors"}
NUMBER = "spec.policy.numberOfClusters"
HTMX = {"HX-Request": "true"}


def _fields(page: str) -> dict[str, str]:
    """Read what a browser would send back of the form, without its buttons."""
    form = page.partition('id="editing"')[2].partition("</form>")[0]
    form = re.sub(r'<input type="radio"(?![^>]* checked)[^>]*>', "", form)
    values = dict(re.findall(r'<input [^>]*name="([^"]*)"[^>]*value="([^"]*)"', form))
    for name, inner in re.findall(
        r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL
    ):
        values[name] = re.findall(r'<option value="([^"]*)" selected', inner)[0]
    return values


def _post(
    client: Client, address: str, more: dict[str, Any], *, htmx: bool = True
) -> Any:
    page = page_text(client.get(address))
    return client.post(address, {**_fields(page), **more}, headers=HTMX if htmx else {})


def _text() -> str:
    return plain_manifest(Draft.objects.get().text)


def _data() -> dict[str, Any]:
    data: dict[str, Any] = load_documents(_text())[0].data
    return data


@pytest.mark.nightly
def test_looking_writes_nothing(operator: Client) -> None:
    for address in (
        NEW,
        EDIT,
        f"{NEW}?from=web",
        f"{NEW}?template=ha-pair",
        f"{EDIT}?as=yaml",
    ):
        assert operator.get(address).status_code == 200

    assert not Draft.objects.exists()


def test_the_first_change_begins_a_draft_and_moves_to_its_address(
    operator: Client,
) -> None:
    answer = _post(operator, EDIT, {NUMBER: "3"})
    draft = Draft.objects.get()

    assert answer.status_code == 200
    assert answer["HX-Push-Url"] == f"/drafts/{draft.pk}/"
    assert (draft.owner.username, draft.revision, draft.base) == (
        "ana",
        1,
        Placement.objects.get().document,
    )
    assert _data()["spec"]["policy"]["numberOfClusters"] == 3
    assert Placement.objects.get().number_of_clusters == 2


def test_a_form_sent_back_as_it_was_begins_no_draft(operator: Client) -> None:
    answer = _post(operator, EDIT, {})

    assert answer.status_code == 200
    assert not Draft.objects.exists()


@pytest.mark.nightly
def test_a_change_answers_with_hints_and_preview_but_no_field(operator: Client) -> None:
    text = page_text(
        _post(
            operator, EDIT, {NUMBER: "3", "spec.strategy.rollingUpdate.maxSurge": "50%"}
        )
    )
    fields = [given for _, given in Outline(text).fields]

    assert fields == []
    assert Outline(text).problems == []
    assert "3 of 3 clusters selected" in text
    assert '<li class="segment new"><b>1</b><span>bravelion<' in text
    assert "50% (2 of 3 clusters)" in text
    assert re.search(
        r'id="notes-spec-policy-numberOfClusters" hx-swap-oob="true"', text
    )


def test_fewer_clusters_keep_none_for_sure_and_say_why_one_is_removed(
    operator: Client,
) -> None:
    page = page_text(_post(operator, EDIT, {NUMBER: "1"}))

    assert "Scale down:" in page
    assert "existing placements are kept" not in page
    assert re.search(r"\w+: Fewer clusters are requested; removed before \w+ on ", page)


def test_warns_of_a_cluster_to_be_selected_that_does_not_answer(
    operator: Client,
) -> None:
    MemberCluster.objects.update(unanswered_since=NOW)

    page = page_text(_post(operator, EDIT, {NUMBER: "3"}))

    assert re.search(r"\w+: heartbeat late\.", page)


@pytest.mark.nightly
def test_the_number_alone_is_incremental_and_anything_else_is_not(
    operator: Client,
) -> None:
    first = page_text(_post(operator, EDIT, {NUMBER: "3"}))
    address = f"/drafts/{Draft.objects.get().pk}/"
    operator.post(
        address,
        {"mode": "form", "add": "spec.policy.topologySpreadConstraints"},
        headers=HTMX,
    )
    more = {"spec.policy.topologySpreadConstraints[0].topologyKey": "region"}
    second = page_text(_post(operator, address, more))

    assert ("Incremental" in first, "Reschedules" in first) == (True, False)
    assert ("Incremental" in second, "Reschedules" in second) == (False, True)
    assert "2 domains; 3 of 3 clusters have it" in second
    assert "region</strong> max skew 1, hard · skew <strong>1</strong>" in second


def test_new_placements_that_were_started_are_listed_by_name_with_their_changes(
    operator: Client,
) -> None:
    _post(operator, NEW, {"metadata.name": "shop", NUMBER: "2"})
    operator.post(NEW, {"mode": "yaml", "manifest": "a: ["})

    page = re.sub(r"\d\d:\d\d", "TIME", page_text(operator.get(NEW)))

    assert "New placement shop (TIME, 2 changes)" in page
    assert "New placement (TIME, Invalid YAML)" in page


def test_a_reader_gets_what_is_valid_at_a_cursor(viewer: Client) -> None:
    text = "spec:\n  policy:\n    topologySpreadConstraints:\n    - topologyKey: "
    answer = viewer.post(
        "/drafts/completions/", {"manifest": text, "row": "3", "column": "20"}
    )

    assert answer.json()["items"][0] == {
        "value": "region",
        "meta": "3 clusters",
        "documentation": "",
    }
    beyond = viewer.post(
        "/drafts/completions/", {"manifest": text, "row": "999999999", "column": "x"}
    )
    assert beyond.status_code == 200


@pytest.mark.nightly
def test_works_without_a_script(operator: Client) -> None:
    answer = _post(operator, EDIT, {NUMBER: "3"}, htmx=False)
    address = answer["Location"]
    page = page_text(operator.get(address))

    draft = f"/drafts/{Draft.objects.get().pk}/"
    assert (answer.status_code, address) == (302, f"{draft}?errors=all")
    assert "3 of 3 clusters selected" in page
    yaml = _post(operator, draft, {"as": "yaml"}, htmx=False)
    assert yaml["Location"] == f"{draft}?as=yaml&errors=all"
    assert 'id="manifest"' in page_text(operator.get(yaml["Location"]))


def test_the_yaml_keeps_what_is_typed_and_says_faults_at_their_lines(
    operator: Client,
) -> None:
    text = dump_yaml(placement_document("web", pick_n_spec(2))).replace(
        "policy:", "policy:  # why\n    foo: 1"
    )
    answer = operator.post(
        EDIT, {"mode": "yaml", "manifest": text.replace("\n", "\r\n")}, headers=HTMX
    )
    page = page_text(answer)
    line = text.splitlines().index("    foo: 1") + 1

    assert _text() == text
    assert re.search(
        rf"line {line}</a> <code>spec.policy.foo</code> Unknown field", page
    )
    assert f"<b>✗ {line}</b>" in page
    assert "2 of 2 clusters selected" in page


@pytest.mark.nightly
def test_a_form_edit_keeps_comments_and_what_no_field_shows(operator: Client) -> None:
    document = placement_document("web", pick_n_spec(2), note="kept")
    text = "# mine\n" + dump_yaml(document).replace(
        "numberOfClusters: 2", "numberOfClusters: 2  # enough"
    )
    operator.post(EDIT, {"mode": "yaml", "manifest": text}, headers=HTMX)
    address = f"/drafts/{Draft.objects.get().pk}/"

    page = page_text(operator.get(address))
    _post(operator, address, {NUMBER: "3"})

    assert (
        "metadata.annotations[&quot;fleetui.io/note&quot;]"
        in page.partition("Also in the YAML")[2]
    )
    assert _text() == text.replace("numberOfClusters: 2", "numberOfClusters: 3")


def test_what_cannot_be_read_stays_and_the_form_says_so(operator: Client) -> None:
    operator.post(EDIT, {"mode": "yaml", "manifest": "a: ["}, headers=HTMX)
    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))

    assert _text() == "a: ["
    assert "The manifest cannot be read. Edit it as YAML." in page
    assert "Invalid YAML" in page


def test_a_document_of_ocm_has_no_form(operator: Client) -> None:
    text = "apiVersion: cluster.open-cluster-management.io/v1beta1\nkind: Placement\n"
    operator.post(NEW, {"mode": "yaml", "manifest": text}, headers=HTMX)

    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))

    assert "OCM manifests have no form. Edit the manifest as YAML." in page
    assert 'value="yaml" aria-current="true"' in page
    assert 'name="manifest"' in page


def test_rows_come_and_go_with_buttons(operator: Client) -> None:
    terms = "spec.policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"
    added = _post(operator, EDIT, {"add": terms})
    address = f"/drafts/{Draft.objects.get().pk}/"
    row = _data()["spec"]["policy"]["affinity"]["clusterAffinity"]
    removed = _post(operator, address, {"remove": f"{terms}[0]"})

    assert row["preferredDuringSchedulingIgnoredDuringExecution"][0]["weight"] == 10
    assert (added["HX-Retarget"], added["HX-Reswap"]) == ("#editor", "outerHTML")
    assert re.search(r'name="[^"]*\[0\]\.weight"[^>]* autofocus', page_text(added))
    assert "Not in the preview yet" in page_text(added)
    assert "affinity" not in _data()["spec"]["policy"]
    assert removed.status_code == 200


@pytest.mark.nightly
def test_a_new_row_is_left_out_and_not_marked_yet(operator: Client) -> None:
    operator.post(
        EDIT,
        {"mode": "form", "add": "spec.policy.topologySpreadConstraints"},
        headers=HTMX,
    )
    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))
    preview = page.partition('id="preview"')[2]

    assert "2 of 2 clusters selected" in preview
    assert "Not in the preview yet: constraint 1" in preview
    assert not re.search(r"topologyKey\"[^>]*aria-invalid", page)


def test_labels_are_offered_with_counts(operator: Client) -> None:
    spec = pick_n_spec(1, topologySpreadConstraints=[{"topologyKey": "region"}])
    decided("spread", spec)
    page = page_text(operator.get("/placements/spread/edit/"))

    offered = page.partition('<datalist id="label-keys">')[2].partition("</datalist>")[
        0
    ]
    assert '<option value="region">3 clusters</option>' in offered


def test_another_type_brings_other_fields_and_offers_to_take_out_the_rest(
    operator: Client,
) -> None:
    changed = _post(operator, NEW, {"spec.policy.placementType": "PickAll"})
    address = f"/drafts/{Draft.objects.get().pk}/"
    page = page_text(changed)
    tidied = _post(
        operator,
        address,
        {
            "tidy": "all",
            "tidy-place": [NUMBER, "spec.policy.topologySpreadConstraints"],
        },
    )

    assert changed["HX-Retarget"] == "#editor"
    assert "Conflicting fields" in page
    assert _data()["spec"]["policy"] == {"placementType": "PickAll"}
    assert "3 clusters selected" in page_text(tidied)


def test_external_removes_the_rolling_update_that_it_does_not_allow_and_says_so(
    operator: Client,
) -> None:
    budgets = {"maxUnavailable": "25%", "maxSurge": 1}
    strategy = {"type": "RollingUpdate", "rollingUpdate": budgets}
    document = placement_document("web", {**pick_n_spec(2), "strategy": strategy})
    save_placement(document, by=None, now=NOW)

    page = page_text(_post(operator, EDIT, {"spec.strategy.type": "External"}))

    assert _data()["spec"]["strategy"] == {"type": "External"}
    assert "Removed rollingUpdate (maxUnavailable: 25%, maxSurge: 1)" in page
    assert "No errors" in page


@pytest.mark.nightly
def test_a_form_made_for_other_rows_changes_nothing(operator: Client) -> None:
    old = _fields(page_text(operator.get(EDIT)))
    operator.post(
        EDIT, {"mode": "form", "add": "spec.policy.tolerations"}, headers=HTMX
    )
    before = _text()

    answer = operator.post(
        f"/drafts/{Draft.objects.get().pk}/", {**old, NUMBER: "3"}, headers=HTMX
    )

    assert "changed in another window" in page_text(answer)
    assert _text() == before


def test_a_second_window_does_not_overwrite_the_draft_of_the_first(
    operator: Client,
) -> None:
    second = _fields(page_text(operator.get(EDIT)))
    _post(operator, EDIT, {NUMBER: "3"})

    answer = operator.post(EDIT, {**second, NUMBER: "1"}, headers=HTMX)

    assert "You have a draft from another window" in page_text(answer)
    assert _data()["spec"]["policy"]["numberOfClusters"] == 3


@pytest.mark.nightly
def test_typing_goes_on_in_the_draft_that_the_page_has_begun(operator: Client) -> None:
    page = page_text(operator.get(NEW))
    first = operator.post(NEW, {**_fields(page), NUMBER: "2"}, headers=HTMX)
    number = re.findall(r'name="draft" value="(\d+)"', page_text(first))[0]

    operator.post(NEW, {**_fields(page), NUMBER: "1", "draft": number}, headers=HTMX)

    assert Draft.objects.count() == 1
    assert _data()["spec"]["policy"]["numberOfClusters"] == 1


def test_a_page_from_before_another_save_keeps_what_it_started_from(
    operator: Client,
) -> None:
    page = _fields(page_text(operator.get(EDIT)))
    changed = placement_document("web", pick_n_spec(3), note="theirs")
    save_placement(changed, by=person("li", "operator"), now=NOW)

    operator.post(EDIT, {**page, NUMBER: "1"}, headers=HTMX)
    draft = Draft.objects.get()
    draft_page = page_text(operator.get(f"/drafts/{draft.pk}/"))

    assert draft.revision == 1
    assert _data()["metadata"] == {"name": "web"}
    assert "web was changed while you edited it" in draft_page
    assert f"{NUMBER}: <del>2</del> → <ins>3</ins>" in draft_page


def test_an_edit_page_says_that_there_is_a_draft(operator: Client) -> None:
    _post(operator, EDIT, {NUMBER: "3"})
    number = Draft.objects.get().pk

    page = page_text(operator.get(EDIT))
    operator.post(f"/drafts/{number}/discard/")

    assert "You have a draft of web" in page
    assert f'href="/drafts/{number}/"' in page
    assert not Draft.objects.exists()


@pytest.mark.nightly
def test_what_may_not_be_changed_is_reported_while_typing(operator: Client) -> None:
    page = page_text(_post(operator, EDIT, {"spec.policy.placementType": "PickAll"}))

    assert (
        "cannot change from PickN to PickAll" in page
        or "not allowed for placementType" in page
    )


@pytest.mark.nightly
def test_a_name_that_is_taken_is_reported_while_typing_and_in_the_review(
    operator: Client,
) -> None:
    answer = _post(operator, NEW, {"metadata.name": "web"})
    review = f"/drafts/{Draft.objects.get().pk}/review/"
    message = "a placement web exists already"

    assert message in page_text(answer)
    assert message in page_text(operator.get(review))
    assert message in page_text(operator.post(review))
    assert [placement.name for placement in Placement.objects.all()] == ["web"]


def test_a_recipe_starts_from_the_labels_of_the_fleet(operator: Client) -> None:
    page = page_text(operator.get(f"{NEW}?template=one-each&as=yaml"))

    assert "numberOfClusters: 2  # one for each region there is now" in page
    assert "topologyKey: region" in page


def test_a_copy_has_another_name(operator: Client) -> None:
    page = page_text(operator.get(f"{NEW}?from=web"))

    assert _fields(page)["metadata.name"] == "web-copy"


@pytest.mark.nightly
def test_a_placement_page_says_that_there_is_a_draft(
    operator: Client, viewer: Client
) -> None:
    _post(operator, EDIT, {NUMBER: "3"})
    number = Draft.objects.get().pk

    assert f'href="/drafts/{number}/">Continue' in page_text(
        operator.get("/placements/web/")
    )
    assert "You have a draft" not in page_text(viewer.get("/placements/web/"))


@pytest.mark.nightly
def test_a_key_that_some_clusters_lack_is_a_warning_beside_its_row(
    operator: Client,
) -> None:
    joined("zebra")
    document = placement_document(
        "web", pick_n_spec(2, topologySpreadConstraints=[{"topologyKey": "region"}])
    )
    operator.post(EDIT, {"mode": "yaml", "manifest": dump_yaml(document)}, headers=HTMX)

    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))

    effect = "not limited by the constraint, and often selected first"
    assert (
        f'<span class="warning">▲ 1 candidate without region (zebra): {effect}.</span>'
        in page
    )
    assert "1 warning" in page


@pytest.mark.nightly
def test_half_of_the_fields_may_be_at_fault_at_once(operator: Client) -> None:
    operator.post(
        EDIT,
        {"mode": "form", "add": "spec.policy.topologySpreadConstraints"},
        headers=HTMX,
    )
    address = f"/drafts/{Draft.objects.get().pk}/"
    operator.post(
        address,
        {"mode": "form", "add": "spec.policy.topologySpreadConstraints"},
        headers=HTMX,
    )
    second = {"spec.policy.topologySpreadConstraints[1].topologyKey": "moon"}

    page = page_text(_post(operator, address, second))

    assert "Not in the preview yet: constraint 1" in page
    assert "No cluster has the label moon" in page


def test_names_of_what_is_on_the_hub_are_offered(operator: Client) -> None:
    apply_resources(
        [namespace("shop"), namespace("bank"), namespace("kube-system")],
        by=None,
        now=NOW,
    )
    page = page_text(operator.get(f"{NEW}?from=web"))

    assert _offered(page) == {"bank", "shop"}

    answer = page_text(
        _post(operator, f"{NEW}?from=web", {f"{SELECTOR}.kind": "ClusterRole"})
    )

    assert _offered(answer) == set()


@pytest.mark.nightly
def test_of_many_names_those_that_hold_what_is_typed_come_first(
    operator: Client,
) -> None:
    apply_resources(
        [namespace(f"team-{number:03}") for number in range(80)], by=None, now=NOW
    )

    answer = page_text(
        _post(operator, f"{NEW}?from=web", {f"{SELECTOR}.name": "m-079"})
    )

    assert len(_offered(answer)) == 50
    assert "team-079" in _offered(answer)


def _offered(page: str) -> set[str]:
    [items] = re.findall(
        r'<datalist id="values-spec-resourceSelectors-0-name"[^>]*>(.*?)</datalist>',
        page,
    )
    return set(re.findall(r'value="([^"]*)"', items))


def test_a_number_that_is_none_reports_its_range_once(operator: Client) -> None:
    answer = page_text(_post(operator, EDIT, {NUMBER: "abc"}))

    assert answer.count("an integer from 0 to 2147483647") == 1


@pytest.mark.nightly
def test_no_field_is_called_like_its_section(operator: Client) -> None:
    page = page_text(operator.get(f"{NEW}?from=web"))
    form = page.partition('id="editing"')[2].partition("</form>")[0]
    legends = set(re.findall(r"<legend>([^<]*)</legend>", form))

    assert legends.isdisjoint(re.findall(r"<label[^>]*>([^<]*)</label>", form))


@pytest.mark.nightly
def test_a_fault_without_a_field_is_led_to_from_the_bar(operator: Client) -> None:
    rolling = "spec.strategy.rollingUpdate"
    both = _post(
        operator, NEW, {f"{rolling}.maxUnavailable": "0", f"{rolling}.maxSurge": "0"}
    )
    page = page_text(both)
    assert "maxUnavailable and maxSurge must not both be 0" in page
    assert page.count('<a href="#errors">Show errors</a>') == 1

    answer = page_text(_post(operator, EDIT, {NUMBER: "abc"}))

    assert "1 error" in answer
    assert "#errors" not in answer


def test_a_new_placement_requires_a_resource_and_offers_those_of_the_hub(
    operator: Client,
) -> None:
    apply_resources([namespace("shop"), namespace("kube-system")], by=None, now=NOW)
    page = page_text(operator.get(NEW))

    assert f"{SELECTOR}.kind" not in _fields(page)
    picker = page.partition('<datalist id="resources-of-hub">')[2].partition(
        "</datalist>"
    )[0]
    assert re.findall('value="([^"]*)"', picker) == ["v1 Namespace shop"]

    _post(operator, NEW, {"pick": "resource", "picked": "v1 Namespace shop"})

    selector = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    assert _data()["spec"]["resourceSelectors"] == [selector]


@pytest.mark.nightly
def test_picking_a_second_resource_adds_a_selector_and_picking_none_changes_nothing(
    operator: Client,
) -> None:
    apply_resources([namespace("shop"), namespace("bank")], by=None, now=NOW)
    _post(operator, NEW, {"pick": "resource", "picked": "v1 Namespace shop"})
    address = f"/drafts/{Draft.objects.get().pk}/"

    _post(operator, address, {"pick": "resource", "picked": ""})
    _post(operator, address, {"pick": "resource", "picked": "v1 Namespace bank"})

    assert [selector["name"] for selector in _data()["spec"]["resourceSelectors"]] == [
        "shop",
        "bank",
    ]


def _picked(client: Client, typed: str, button: str, *, htmx: bool = True) -> Any:
    given = {"picked": typed, **dict([button.split("=")])}
    return _post(client, NEW, given, htmx=htmx)


@pytest.mark.parametrize(
    ("typed", "button"),
    [
        ("v1 Namespace shop", "pick=resource"),
        ("v1 Namespace shop", "do=update"),
        ("v1 Namespace shop", "review=1"),
        ("v1 Namespace shop", "as=yaml"),
        (" shop ", "review=1"),
        ("Namespace shop", "review=1"),
        ("ho", "review=1"),
    ],
)
def test_a_typed_resource_is_selected_by_every_button(
    operator: Client, typed: str, button: str
) -> None:
    apply_resources([namespace("shop"), namespace("bank")], by=None, now=NOW)

    answer = _picked(operator, typed, button)

    assert [selector["name"] for selector in _data()["spec"]["resourceSelectors"]] == [
        "shop"
    ]
    assert typed not in _fields(page_text(answer)).values()


@pytest.mark.parametrize(
    "button", ["pick=resource", "do=update", "review=1", "as=yaml"]
)
@pytest.mark.parametrize("htmx", [True, False])
def test_a_typed_resource_that_is_unclear_is_kept_with_a_message(
    operator: Client, button: str, *, htmx: bool
) -> None:
    apply_resources([namespace("shop"), namespace("shop-2")], by=None, now=NOW)

    unknown = page_text(_picked(operator, "helo", button, htmx=htmx))
    several = page_text(_picked(operator, "sho", button, htmx=htmx))

    assert "No resource helo on the hub." in unknown
    assert "Several resources match: Namespace shop, Namespace shop-2." in several
    assert [_fields(page)["picked"] for page in (unknown, several)] == ["helo", "sho"]


def test_a_typed_resource_is_kept_while_the_form_changes(operator: Client) -> None:
    apply_resources([namespace("shop")], by=None, now=NOW)

    page = _post(
        operator, NEW, {"picked": "sh", "spec.policy.placementType": "PickAll"}
    )

    assert _fields(page_text(page))["picked"] == "sh"
    assert "spec.resourceSelectors[0].name" not in Draft.objects.get().text


def _is_red(page: str) -> bool:
    """Return whether a page shows, marks or announces an error."""
    editor = page.partition('id="editor"')[2]
    marks = ("aria-invalid", 'role="alert"', 'class="fault"', "✗", "mark failed")
    return any(one in editor for one in (*marks, "Required value", "(invalid)"))


@pytest.mark.parametrize("query", ["", "?scope=namespace", "?as=yaml", "?from=web"])
def test_nothing_is_red_on_a_new_placement(operator: Client, query: str) -> None:
    page = page_text(operator.get(NEW + query))

    assert not _is_red(page)
    assert query == "?from=web" or re.search("Missing: .*resource selector", page)


def test_a_name_that_the_start_has_is_free(operator: Client) -> None:
    decided("my-placement", pick_n_spec(1))
    decided("web-copy", pick_n_spec(1))

    names = [
        _fields(page_text(operator.get(address)))["metadata.name"]
        for address in (NEW, f"{NEW}?from=web")
    ]

    assert names == ["my-placement-2", "web-copy-2"]


def test_an_error_is_shown_once_its_field_was_touched(operator: Client) -> None:
    first = {"metadata.name": "shop", "touched": "metadata.name", **ROW}
    before = page_text(_post(operator, NEW, first))
    address = f"/drafts/{Draft.objects.get().pk}/"

    after = _post(operator, address, {"touched": f"metadata.name {SELECTOR}.kind"})

    assert not _is_red(f'id="editor"{before}')
    assert f'data-pending="{SELECTOR}.kind"' in before
    assert "✗ Required value" in page_text(after)


def test_a_value_that_is_wrong_is_shown_again_when_the_draft_is_opened(
    operator: Client,
) -> None:
    _post(operator, NEW, {NUMBER: "-3"})

    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))

    assert "Invalid value: -3" in page
    assert "Required value" not in page


@pytest.mark.parametrize("htmx", [True, False])
def test_a_submitted_form_shows_all_errors_with_path_and_allowed_values(
    operator: Client, *, htmx: bool
) -> None:
    more = {NUMBER: "-3", "review": "1"}

    answer = _post(operator, NEW, more, htmx=htmx)
    if not htmx:
        assert answer["Location"].endswith("?errors=all")
        answer = operator.get(answer["Location"])
    page = page_text(answer)

    assert "<code>spec.resourceSelectors</code>" in page
    assert f"<code>{NUMBER}</code>" in page
    assert "allowed: an integer from 0 to" in page
    assert page.count("aria-invalid") == 2
    assert re.search(r'id="picked"[^>]* autofocus', page)
    assert 'name="touched" value="*"' in page


def test_a_review_with_errors_says_that_it_was_not_opened(operator: Client) -> None:
    page = page_text(_post(operator, EDIT, {NUMBER: "-3", "review": "1"}))

    assert "Correct 1 error before the review." in page
    assert re.search(rf'name="{re.escape(NUMBER)}"[^>]* autofocus', page)


def test_drafts_of_new_placements_are_listed_with_the_placements(
    operator: Client,
) -> None:
    page = page_text(_post(operator, NEW, {"metadata.name": "shop"}))
    listed = page_text(operator.get("/placements/"))

    assert "not applied; Cancel keeps the draft" in page
    assert "You have a draft: New placement shop" in listed
    assert f'href="/drafts/{Draft.objects.get().pk}/">Continue' in listed


def test_drafts_of_placements_that_exist_are_listed_too(operator: Client) -> None:
    _post(operator, EDIT, {NUMBER: "3"})

    listed = page_text(operator.get("/placements/"))

    assert re.search(r"You have a draft: web \(\d\d:\d\d, 1 change\)", listed)


def test_becoming_external_is_accepted_with_a_tick(operator: Client) -> None:
    _post(operator, EDIT, {"spec.strategy.type": "External"})
    draft = Draft.objects.get()

    review = page_text(operator.get(f"/drafts/{draft.pk}/review/"))
    refused = operator.post(f"/drafts/{draft.pk}/review/", {"doubts": "1"})

    assert "External cannot be changed to RollingUpdate" in review
    assert "Save with these warnings" in review
    assert refused.status_code == 422
    saved = save_placement(_data(), by=None, now=NOW)
    assert [
        warning.code
        for warning in saved.warnings
        if warning.path == "spec.strategy.type"
    ] == ["becomes-external"]


def test_a_review_of_no_changes_says_so(operator: Client) -> None:
    page = page_text(_post(operator, EDIT, {"review": "1"}))

    assert "There are no changes to review." in page


def test_what_an_edit_changes_is_marked(operator: Client) -> None:
    _post(operator, EDIT, {NUMBER: "3", "add": "spec.policy.topologySpreadConstraints"})

    page = page_text(operator.get(f"/drafts/{Draft.objects.get().pk}/"))

    assert re.findall('<strong class="was">([^<]*)<', page) == ["was 2", "added"]
    assert "2 changes" in page


def _create_namespace(client: Client, address: str, values: dict[str, str]) -> str:
    """Type values into the editor, and press the button beside the field of the last one."""
    page = page_text(_post(client, address, values))
    draft = f"/drafts/{Draft.objects.get().pk}/"
    [field] = re.findall(r'name="namespace" value="([^"]+)"', page)
    return str(page_text(_post(client, draft, {"namespace": field})))


def test_a_namespace_is_created_from_its_field_and_nothing_is_lost(
    operator: Client,
) -> None:
    _post(operator, NEW, ROW)
    typed = {
        "metadata.name": "shop2",
        f"{SELECTOR}.version": "v1",
        f"{SELECTOR}.kind": "Namespace",
        f"{SELECTOR}.name": "fresh",
    }

    page = _create_namespace(operator, f"/drafts/{Draft.objects.get().pk}/", typed)

    [made] = Resource.objects.filter(kind="Namespace", name="fresh")
    assert made.content == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "fresh"},
    }
    assert "Namespace fresh created." in page
    assert _data()["metadata"]["name"] == "shop2"
    assert "Selects 1 resource: Namespace" in page
    assert 'name="namespace"' not in page


def test_the_namespace_of_a_namespaced_placement_is_created(operator: Client) -> None:
    typed = {"metadata.namespace": "fresh"}

    page = _create_namespace(operator, f"{NEW}?scope=namespace", typed)

    assert "Namespace fresh created." in page
    assert Resource.objects.filter(kind="Namespace", name="fresh").exists()


def test_a_namespace_that_may_not_be_made_is_refused_with_the_reason(
    operator: Client,
) -> None:
    _post(operator, NEW, ROW)
    typed = {f"{SELECTOR}.kind": "Namespace", f"{SELECTOR}.name": "Not a name"}

    page = _create_namespace(operator, f"/drafts/{Draft.objects.get().pk}/", typed)

    assert "The namespace was not created. metadata.name: " in page
    assert _data()["spec"]["resourceSelectors"][0]["name"] == "Not a name"
    assert not Resource.objects.filter(name="Not a name").exists()


@pytest.mark.parametrize("name", ["shop", "kube-system", ""])
def test_no_namespace_is_offered_that_exists_or_is_of_the_hub(
    operator: Client, name: str
) -> None:
    _post(operator, NEW, ROW)
    draft = f"/drafts/{Draft.objects.get().pk}/"
    typed = {f"{SELECTOR}.kind": "Namespace", f"{SELECTOR}.name": name}

    page = page_text(_post(operator, draft, typed))

    assert 'name="namespace"' not in page
