"""The editor as a newcomer uses it: with few clicks, by form and by YAML, and without losing input."""

import copy
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import yaml
from playwright.sync_api import Dialog, Locator, Page, Route, expect

from fleetui.access.secret_values import plain_manifest
from placements.models import Draft, Placement
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from tests.rows import NOW, placed

Enter = Callable[..., Page]
_NEW = """\
apiVersion: placement.kubernetes-fleet.io/v1
kind: ClusterResourcePlacement
metadata:
  name: shop
spec:
  resourceSelectors:
    - {group: "", version: v1, kind: Namespace, name: web}
  policy:
    placementType: PickN
    numberOfClusters: 3
    topologySpreadConstraints:
      - topologyKey: regoin
"""
_CHOOSE = "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', { bubbles: true })); }"
"""What a browser does when an entry of a list of suggestions is chosen."""

_TYPE_AND_REVIEW = """(one, value) => {
  one.value = value;
  one.dispatchEvent(new Event("input", { bubbles: true }));
  document.querySelector("button[name=review]").click();
}"""
"""What a person does before the draft is saved."""
_IS_ON_TOP = """one => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return document.elementFromPoint(x + width / 2, y + height / 2) === one;
}"""


@pytest.fixture
def clicks() -> list[str]:
    """Return what was clicked."""
    return []


@pytest.fixture
def click(clicks: list[str]) -> Callable[[Locator], None]:
    """Return a function that clicks and counts."""

    def press(one: Locator) -> None:
        clicks.append(one.inner_text())
        one.click()

    return press


@pytest.mark.usefixtures("nine")
def test_a_placement_by_form_takes_four_clicks_and_three_fields(
    enter: Enter, click: Callable[[Locator], None], clicks: list[str]
) -> None:
    page = enter("/", "operator")
    click(
        page.get_by_role("navigation", name="Sections").get_by_role(
            "link", name="Placements"
        )
    )
    click(page.get_by_role("link", name="Create placement"))

    page.get_by_label("Name", exact=True).first.fill("shop")
    page.get_by_label("Resource on the hub").evaluate(_CHOOSE, "v1 Namespace hello")
    expect(page.locator('[name="spec.resourceSelectors[0].name"]')).to_have_value(
        "hello"
    )
    page.get_by_label("Number of clusters").fill("3")
    expect(page.locator("#preview")).to_contain_text("resources selected")
    click(page.get_by_role("button", name="Review changes"))
    click(page.get_by_role("button", name="Save shop"))

    expect(page).to_have_url(re.compile("/placements/shop/$"))
    assert len(placed(Placement.objects.get(name="shop"))) == 3
    assert len(clicks) <= 4
    assert not Draft.objects.exists()


@pytest.mark.usefixtures("nine")
def test_a_resource_is_selected_however_it_is_typed(enter: Enter) -> None:
    page = enter("/placements/new/", "operator")
    field = page.get_by_label("Resource on the hub")
    name = page.locator('[name="spec.resourceSelectors[0].name"]')

    field.fill("v1 Namespace hello")
    expect(name).to_have_value("hello")

    page.goto("/placements/new/")
    field.press_sequentially("hello")
    field.press("Enter")
    expect(name).to_have_value("hello")

    page.goto("/placements/new/")
    field.press_sequentially("hello")
    page.get_by_label("Number of clusters").click()
    expect(name).to_have_value("hello")
    expect(page.get_by_label("Number of clusters")).to_be_focused()

    page.goto("/placements/new/")
    field.press_sequentially("helo")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("#notes-picked")).to_have_text("✗ No resource helo on the hub.")
    expect(field).not_to_be_focused()
    page.get_by_role("button", name="Review changes").click()
    expect(page.locator("#notes-picked")).to_have_text("✗ No resource helo on the hub.")
    expect(field).to_have_value("helo")
    expect(field).to_be_focused()
    field.fill("")
    field.press_sequentially("v1 Namespace hello")
    page.get_by_role("button", name="Review changes").click()
    expect(page).to_have_url(re.compile(r"/review/"))


@pytest.mark.usefixtures("nine")
def test_a_placement_by_yaml_is_completed_marked_and_saved_with_a_confirmation(
    enter: Enter, click: Callable[[Locator], None], clicks: list[str]
) -> None:
    page = enter("/", "operator")
    click(
        page.get_by_role("navigation", name="Sections").get_by_role(
            "link", name="Placements"
        )
    )
    click(page.get_by_role("link", name="Create from YAML"))
    editor = page.locator(".ace_editor.ace-fleet")
    editor.locator(".ace_text-input").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(_NEW)
    page.keyboard.insert_text("  stra")

    expect(editor.locator(".ace_gutter-cell.ace_error")).to_have_text("13")
    expect(editor.locator(".ace_meta.ace_tag").first).to_have_text("apiVersion")
    expect(page.locator("#preview")).to_contain_text(
        "Ignored in preview (invalid): line 13"
    )
    expect(page.locator("#preview .result")).to_contain_text("3 of 3 clusters selected")
    page.keyboard.press("Control+Space")
    expect(page.locator(".ace_autocomplete")).to_be_visible()
    page.keyboard.press("Enter")
    page.keyboard.insert_text("\n    type: RollingUpdate")

    expect(page.locator("#state")).to_contain_text("No errors")
    # Line 6 selects the namespace of another placement.
    expect(editor.locator(".ace_gutter-cell.ace_warning")).to_have_text(["6", "12"])
    assert "strategy:\n    type: RollingUpdate" in plain_manifest(
        Draft.objects.get().text
    )
    click(page.get_by_role("button", name="Review changes"))
    save = page.get_by_role("button", name="Save shop")
    save.click()
    expect(save).to_be_visible()  # the browser requires the confirmation
    assert not Placement.objects.filter(name="shop").exists()
    page.get_by_label("Save with these warnings").check()
    click(save)

    expect(page).to_have_url(re.compile("/placements/shop/$"))
    assert len(clicks) <= 4
    assert not Draft.objects.exists()


@pytest.mark.usefixtures("nine")
def test_input_is_not_lost_by_tab_keys_tabs_of_the_page_or_leaving(
    enter: Enter, complaints: list[str]
) -> None:
    page = enter("/placements/web/edit/?as=yaml", "operator")
    editor = page.locator(".ace_editor.ace-fleet")
    editor.locator(".ace_text-input").focus()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text("# mine")
    page.keyboard.press("Tab")
    expect(editor.locator(".ace_text-input")).not_to_be_focused()
    page.get_by_role("button", name="Form", exact=True).click()
    page.get_by_label("Number of clusters").fill("6")
    page.get_by_role("button", name="YAML", exact=True).click()
    expect(page.locator("#manifest")).to_have_value(
        re.compile("numberOfClusters: 6(.|\n)*# mine")
    )
    expect(page.locator("#unsaved")).to_be_empty()

    dialogs: list[str] = []

    def stay(dialog: Dialog) -> None:
        dialogs.append(dialog.type)
        dialog.dismiss()

    def refuse(route: Route) -> None:
        route.abort()

    page.on("dialog", stay)
    page.route("**/drafts/**", refuse)
    editor.locator(".ace_text-input").focus()
    page.keyboard.insert_text("x")
    expect(page.locator("#unsaved")).to_contain_text("Not saved")
    page.get_by_role("link", name="Cancel").click()
    expect(editor).to_be_visible()
    assert dialogs == ["beforeunload"]
    assert "# minex" not in plain_manifest(Draft.objects.get().text)
    page.unroute("**/drafts/**")
    page.keyboard.insert_text("y")
    expect(page.locator("#unsaved")).to_be_empty()
    page.get_by_role("link", name="Cancel").click()
    expect(page).to_have_url(re.compile("/placements/web/$"))
    complaints.clear()


@pytest.mark.usefixtures("nine")
def test_review_right_after_typing_saves_and_asks_nothing(enter: Enter) -> None:
    page = enter("/placements/web/edit/", "operator")
    dialogs: list[str] = []

    def leave(dialog: Dialog) -> None:
        dialogs.append(dialog.type)
        dialog.accept()

    page.on("dialog", leave)
    field = page.get_by_label("Number of clusters")
    field.click()
    field.evaluate(_TYPE_AND_REVIEW, "6")

    expect(page).to_have_url(re.compile(r"/review/"))
    expect(page.locator("main")).to_contain_text("6 of 6 clusters selected")
    assert dialogs == []


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("width", [1440, 390])
def test_what_a_rollback_is_warned_of_is_above_its_button(
    enter: Enter, work: Callable[[], None], width: int
) -> None:
    saved = Placement.objects.get(name="web").document
    unlikely = copy.deepcopy(saved)
    unlikely["spec"]["policy"]["topologySpreadConstraints"][0]["topologyKey"] = "regoin"
    for document in (unlikely, saved):
        save_placement(document, by=None, now=datetime.now(UTC), confirmed=True)
        work()
    page = enter("/placements/web/roll-back/", "operator", width=width)
    confirm = page.get_by_role("button", name=re.compile("^Roll back to revision"))
    tick = page.get_by_label("Roll back with these warnings")

    expect(confirm).to_be_in_viewport()
    expect(tick).to_be_in_viewport()
    assert tick.evaluate(_IS_ON_TOP)
    confirm.click()
    assert tick.evaluate("one => one.matches(':invalid:focus')")
    tick.check()
    confirm.click()

    expect(page).to_have_url(re.compile("/placements/web/$"))


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("javascript", [True, False])
def test_rolls_back_to_the_revision_that_is_chosen(
    enter: Enter, work: Callable[[], None], javascript: bool
) -> None:
    document = Placement.objects.get(name="web").document
    for number in (4, 3, 2):
        document = copy.deepcopy(document)
        document["spec"]["policy"]["numberOfClusters"] = number
        save_placement(document, by=None, now=datetime.now(UTC), confirmed=True)
        work()
    page = enter("/placements/web/roll-back/", "operator", javascript=javascript)
    main = page.locator("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(
        "Roll back web to revision 4?"
    )

    page.get_by_label("Revision 3").check()
    if not javascript:
        page.get_by_role("button", name="Show changes").click()
    expect(main.get_by_role("heading", level=1)).to_have_text(
        "Roll back web to revision 3?"
    )
    expect(main.get_by_role("region", name="Result")).to_contain_text(
        "4 of 4 clusters selected"
    )
    expect(page.get_by_label("Revision 3")).to_be_checked()
    page.get_by_role("button", name="Roll back to revision 3").click()

    expect(page).to_have_url(re.compile("/placements/web/$"))
    assert Placement.objects.get(name="web").number_of_clusters == 4


@pytest.mark.usefixtures("nine")
def test_a_prefilled_name_is_replaced_by_what_is_typed(enter: Enter) -> None:
    page = enter("/placements/new/", "operator")
    name = page.get_by_label("Name", exact=True).first
    # A busy machine: letters are typed before the next frame.
    page.evaluate(
        "() => { window.requestAnimationFrame = (draw) => setTimeout(draw, 300); }"
    )

    name.click()
    page.keyboard.type("shop", delay=80)
    expect(name).to_have_value("shop")
    name.click()
    page.keyboard.press("End")
    page.keyboard.type("-2")

    expect(name).to_have_value("shop-2")


@pytest.mark.usefixtures("nine")
def test_input_before_the_scripts_have_loaded_is_previewed(enter: Enter) -> None:
    page, held = enter("/", "operator"), list[Route]()

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"(htmx|editor)[^/]*\.js"), hold)
    page.goto("/placements/new/", wait_until="commit")
    page.get_by_label("Name", exact=True).first.fill("shop")
    page.get_by_label("Resource on the hub").evaluate(_CHOOSE, "v1 Namespace web")
    page.get_by_label("Number of clusters").fill("6")

    for one in held:
        one.continue_()

    expect(page.locator('[name="spec.resourceSelectors[0].name"]')).to_have_value("web")
    expect(page.locator("#preview .result")).to_contain_text("6 of 6 clusters selected")


@pytest.mark.usefixtures("nine")
def test_buttons_pressed_while_a_response_is_awaited_are_not_lost(enter: Enter) -> None:
    page, held = enter("/placements/web/edit/", "operator"), list[Route]()
    rows = page.get_by_role("group", name="Topology spread constraints").locator(".row")
    expect(rows).to_have_count(2)
    page.evaluate(
        "() => { window.requests = 0; addEventListener('htmx:confirm', () => window.requests++) }"
    )
    page.route("**/placements/web/edit/**", lambda route: held.append(route), times=1)  # noqa: PLW0108

    with page.expect_request("**/placements/web/edit/**"):
        page.get_by_label("Number of clusters").fill("6")
    page.get_by_role("button", name="Add constraint").click()
    page.get_by_role("button", name="Add constraint").click()
    page.get_by_label("Number of clusters").fill("4")
    page.wait_for_function("() => window.requests === 4")
    held[0].continue_()

    expect(rows).to_have_count(4)
    expect(page.locator("#preview .result")).to_contain_text("4 of 4 clusters selected")
    expect(page.locator("#unsaved")).to_have_text("")


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("key", ["", " "])
def test_a_button_held_down_while_the_form_would_be_replaced_is_pressed(
    enter: Enter, key: str
) -> None:
    page, held = enter("/placements/new/", "operator"), list[Route]()
    add = page.get_by_role("button", name="Add constraint")
    page.route("**/placements/new/**", lambda route: held.append(route), times=1)  # noqa: PLW0108
    with page.expect_request("**/placements/new/**"):
        page.get_by_role("button", name="Add resource selector").click()
    add.hover()
    add.focus()
    if key:
        page.keyboard.down(key)
    else:
        page.mouse.down()

    with page.expect_response("**/placements/new/**"):
        held[0].continue_()
    page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    if key:
        page.keyboard.up(key)
    else:
        page.mouse.up()

    for name in ("resourceSelectors[0].kind", "policy.topologySpreadConstraints[1]"):
        expect(page.locator(f'[name^="spec.{name}"]').first).to_be_attached()


@pytest.mark.usefixtures("nine")
def test_a_button_of_a_form_that_was_just_replaced_is_pressed(enter: Enter) -> None:
    page = enter("/placements/new/", "operator")
    page.evaluate("() => { window.isKept = true; }")
    # A busy machine: what htmx leaves for later comes late. The button is pressed in between.
    page.evaluate("""() => {
      const later = window.setTimeout;
      window.setTimeout = (call, after) => later(call, after === 20 ? 2000 : after);
      document.addEventListener("htmx:afterSwap", () => {
        later(() => document.querySelector("[value='spec.policy.topologySpreadConstraints']").click());
      }, { once: true });
    }""")

    page.get_by_role("button", name="Add resource selector").click()

    key = page.locator('[name="spec.policy.topologySpreadConstraints[1].topologyKey"]')
    expect(key).to_be_focused()
    assert page.evaluate("window.isKept") is True


@pytest.mark.usefixtures("nine")
def test_a_new_form_keeps_the_selection_of_a_field(enter: Enter) -> None:
    page, held = enter("/placements/web/edit/", "operator"), list[Route]()
    number, kind = (
        page.get_by_label("Number of clusters"),
        '[name="spec.resourceSelectors[1].kind"]',
    )
    page.get_by_text("Select another resource").click()
    page.get_by_label("Resource on the hub").press_sequentially("v1 Namespace web")
    expect(page.locator("#unsaved")).to_have_text("")
    page.route(re.compile("/(edit|drafts)/"), lambda route: held.append(route), times=1)  # noqa: PLW0108
    with page.expect_request(re.compile("/(edit|drafts)/")):
        page.get_by_role("button", name="Select resource").click()
    number.select_text()

    held[0].continue_()
    expect(page.locator(kind)).to_have_value("Namespace")
    page.keyboard.type("4")

    expect(number).to_have_value("4")


@pytest.mark.usefixtures("nine")
def test_nothing_is_red_before_it_is_touched_or_submitted(enter: Enter) -> None:
    page = enter("/placements/new/", "operator")
    red = page.locator(
        "#editor :is(.fault, [aria-invalid=true], [role=alert], .mark.failed)"
    )
    kind = page.locator('[name="spec.resourceSelectors[0].kind"]')
    page.get_by_label("Name", exact=True).first.fill("shop")
    page.get_by_role("button", name="Add resource selector").click()
    page.get_by_role("button", name="Add constraint").click()
    key = page.locator('[name="spec.policy.topologySpreadConstraints[1].topologyKey"]')
    expect(key).to_be_focused()
    expect(page.locator("#state")).to_contain_text(
        "Missing: Topology key of constraint 2, Version of resource selector 1, "
        "Kind of resource selector 1"
    )
    expect(red).to_have_count(0)

    page.keyboard.press("Tab")

    expect(key).to_have_attribute("aria-invalid", "true")
    expect(kind).not_to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Review changes").click()
    expect(kind).to_have_attribute("aria-invalid", "true")
    version = page.locator('[name="spec.resourceSelectors[0].version"]')
    expect(version).to_be_focused()
    expect(page.locator("#errors")).to_contain_text(
        "spec.resourceSelectors[0].kind Required value"
    )
    kind.fill("Namespace")
    expect(kind).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.usefixtures("nine")
def test_a_namespace_is_created_beside_its_field(enter: Enter) -> None:
    page = enter("/placements/new/", "operator")
    name = page.locator('[name="spec.resourceSelectors[0].name"]')
    page.get_by_label("Name", exact=True).first.fill("shop")
    page.get_by_role("button", name="Add resource selector").click()
    page.locator('[name="spec.resourceSelectors[0].version"]').fill("v1")
    page.locator('[name="spec.resourceSelectors[0].kind"]').fill("Namespace")
    name.fill("fresh")

    page.get_by_role("button", name="Create namespace").click()

    expect(page.get_by_text("Namespace fresh created.")).to_be_visible()
    expect(page.get_by_text("Selects 1 resource: Namespace")).to_be_visible()
    expect(name).to_be_focused()
    expect(page.get_by_label("Name", exact=True).first).to_have_value("shop")
    page.get_by_role("button", name="Review changes").click()
    expect(page.get_by_role("button", name="Save shop")).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_the_editor_opens_with_the_form_the_picks_and_the_lanes(enter: Enter) -> None:
    page = enter("/placements/web/edit/", "operator")
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_label("Number of clusters").fill("6")
    expect(page.get_by_text("was 5", exact=True)).to_be_visible()

    for selector in (
        "#preview .result",
        "#preview .pick-chips",
        "#preview .lanes >> nth=0",
        "#preview .lanes >> nth=1",
        "#preview .waves",
        "#spec-policy-topologySpreadConstraints",
    ):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, selector
    expect(page.locator("#preview .band").first).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_apply_yaml_shows_differences_before_it_applies(
    enter: Enter, complaints: list[str]
) -> None:
    page = enter("/resources/apply/", "operator")
    manifest = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: flags, namespace: web}
data: {color: blue}
"""
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
    page.get_by_label("Manifests").fill(f"{manifest}more")
    expect(page.locator("#apply-preview")).to_contain_text("line 5")
    expect(page.locator("#apply-preview [role=alert]")).to_have_count(0)
    page.get_by_label("Manifests").fill(manifest)
    expect(page.locator(".objects")).to_contain_text(
        "Would be created ConfigMap web/flags"
    )
    expect(page.get_by_label("Manifests")).to_be_focused()
    expect(page.locator(".objects .came").last).to_contain_text("color: blue")
    apply_resources([yaml.safe_load(manifest.replace("blue", "red"))], by=None, now=NOW)

    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("has changed since your preview")
    expect(page.locator(".objects")).to_contain_text(
        "Would be changed ConfigMap web/flags"
    )
    page.get_by_role("button", name="Apply", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text("1 document applied")
    complaints.clear()  # of the status 409
