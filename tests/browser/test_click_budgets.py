"""Tasks of a newcomer with the demo of nine, from the overview, within their budgets of clicks (9.1)."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement
from placements.services.demo.load import load_demo
from placements.services.resources.operations import apply_resources
from tests.browser.conftest import arrived
from tests.rows import config_map

Enter = Callable[..., Page]


class Clicks:
    """Clicks on a page, and counts."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def begin(self) -> None:
        """Go to the overview, with no click made yet."""
        self.page.goto("/")
        self.count = 0

    def press(
        self, role: str, name: str | re.Pattern[str], *, within: str = "main"
    ) -> None:
        """Click on the first thing of this role and name."""
        part = self.page.locator(within)
        part.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]  # a role
        arrived(self.page)
        self.count += 1


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_tasks_take_no_more_clicks_than_planned(
    enter: Enter, work: Callable[[], None]
) -> None:
    work()
    User.objects.create_superuser("root", password="a long enough password")
    page = enter("/", name="root")
    clicks, main = Clicks(page), page.locator("main")

    # Change the number of clusters: 4 clicks and a field.
    clicks.begin()
    clicks.press("link", "web")
    clicks.press("link", "Edit")
    page.get_by_label("Number of clusters").fill("6")
    expect(page.locator("#preview .result")).to_contain_text("6 of 6 clusters selected")
    clicks.press("button", "Review changes")
    clicks.press("button", "Save web")
    expect(main).to_contain_text("Placement web saved.")
    expect(main).to_contain_text("of 6 started")
    assert clicks.count <= 4
    work()
    page.goto("/placements/web/decision/")
    expect(main).to_contain_text("numberOfClusters 5 → 6")

    # Watch a rollout: 1 click.
    clicks.begin()
    page.locator("#rollouts-now a[href^='/rollouts/web/']").click()
    clicks.count += 1
    expect(page.locator("#picture")).to_be_visible()
    expect(page.locator(".run-counts")).to_contain_text("updated")
    assert clicks.count <= 1

    # Pause and resume: 1 click each on the page of the placement.
    clicks.begin()
    clicks.press("link", "web")
    clicks.press("button", "Pause")
    expect(main).to_contain_text("Paused by root")
    clicks.press("button", "Resume")
    expect(main).not_to_contain_text("Paused by root")
    expect(page).to_have_url(re.compile("/placements/web/$"))
    assert clicks.count <= 3

    # Compare two revisions: 3 clicks.
    clicks.begin()
    clicks.press("link", "web")
    clicks.press("link", "Revision history")
    clicks.press("button", "Compare")
    expect(page.get_by_role("region", name="Manifest, line by line")).to_contain_text(
        "After"
    )
    assert clicks.count <= 3

    # Roll back: 3 clicks, with the difference before.
    now = datetime.now(UTC)
    apply_resources(
        [config_map("settings", in_="web", data={"color": "green"})], by=None, now=now
    )
    work()
    clicks.begin()
    clicks.press("link", "web")
    clicks.press("link", "Roll back")
    expect(main).to_contain_text("ConfigMap web/settings")
    confirm = main.get_by_role("button", name=re.compile("^Roll back to revision"))
    expect(confirm).to_be_in_viewport()
    clicks.press("button", re.compile("^Roll back to revision"))
    expect(main).to_contain_text("Pinned")
    assert clicks.count <= 3
    work()

    # Make a cluster fail: 2 clicks.
    clicks.begin()
    page.locator("#search").fill("smartfish")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/clusters/smartfish/$"))
    clicks.press("link", "Simulate a failure")
    clicks.press("button", "Simulate a failure")
    expect(main).to_contain_text("Fault “Unreachable” injected on smartfish")
    assert clicks.count <= 2

    # Create a strategy of two stages: 4 of the 12 clicks of a staged rollout.
    clicks.begin()
    clicks.press("link", re.compile("^Rollouts"), within="nav")
    clicks.press("link", "Staged update strategies")
    clicks.press("link", "Create strategy")
    clicks.press("button", "Save strategy")
    expect(page.get_by_role("heading", level=1)).to_have_text("canary-first")
    assert clicks.count <= 4

    # A staged run with an approval, with that strategy: 8 of the same 12 clicks, and two fields.
    clicks.begin()
    clicks.press("link", "cache")
    clicks.press("link", "Edit")
    page.get_by_label("External (staged update runs)").check(force=True)
    expect(page.locator("#preview")).to_contain_text("staged update run")
    clicks.press("button", "Review changes")
    page.get_by_label("Save with these warnings").check()
    clicks.count += 1
    clicks.press("button", "Save cache")
    work()
    page.get_by_label("Strategy").select_option("canary-first")
    clicks.press("button", "Start run")
    expect(page).to_have_url(re.compile("/rollouts/staged/runs/cache-1/$"))
    work()
    page.get_by_label("Comment").fill("looks fine")
    clicks.press("button", "Approve stage")
    expect(main).to_contain_text("looks fine")
    assert clicks.count <= 7

    # Add a viewer: 5 clicks and 2 fields.
    clicks.begin()
    page.locator("#settings > summary").click()
    clicks.count += 1
    clicks.press("link", "Users", within="nav")
    page.get_by_label("Username").fill("vera")
    page.get_by_label("Password").fill("a long enough password")
    page.get_by_label(re.compile("^viewer", re.IGNORECASE)).check()
    clicks.count += 1
    clicks.press("button", "Add user")
    assert [group.name for group in User.objects.get(username="vera").groups.all()] == [
        "viewer"
    ]
    assert clicks.count <= 5

    # Find the documentation of REST and the tokens: 2 clicks each.
    for name, heading in (("API", re.compile("API")), ("API tokens", "API tokens")):
        clicks.begin()
        page.locator("#settings > summary").click()
        clicks.count += 1
        clicks.press("link", name, within="nav")
        expect(page.get_by_role("heading", level=1).first).to_have_text(heading)
        assert clicks.count <= 2
    assert Placement.objects.get(name="web").number_of_clusters == 6


def test_the_example_of_the_documentation_is_explained_after_one_click(
    enter: Enter,
) -> None:
    load_demo(4, by=None, now=datetime.now(UTC))
    page = enter("/placements/even-by-region/", "operator")
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", "Decision")

    assert clicks.count <= 1
    expect(main.get_by_role("button", name="▶ Play")).to_be_visible()
    expect(main.get_by_role("link", name="◀ Back")).to_be_visible()
    for step, sentence in (
        ("Step 1", "last of the alphabet first: smartfish, jumpingcat"),
        ("Step 2", "1 cluster blocked: one more would break maxSkew 1 of region."),
    ):
        picture = main.get_by_role("region", name=step, exact=True)
        expect(picture.locator("table.ranking")).to_be_visible()
        expect(picture).to_contain_text(sentence)


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_cluster_is_added_labelled_tainted_and_drained_within_five_clicks(
    enter: Enter,
) -> None:
    page = enter("/", "operator")
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", "Clusters", within="nav")
    clicks.press("link", "Add member cluster")
    page.get_by_label("Name (required)").fill("newcomer")
    page.get_by_label("Label key 1").fill("region")
    page.get_by_label("Label value 1").fill("east")
    page.get_by_label("Taint key 1").fill("dedicated")
    clicks.press("button", "Add member cluster")
    clicks.press("link", "Drain")
    clicks.press("button", "Drain newcomer")
    expect(main).to_contain_text("Drain of newcomer started.")
    assert clicks.count <= 5

    # The same in the admin, from the page of the cluster.
    page.goto("/clusters/newcomer/")
    page.locator("#more-actions > summary").click()
    clicks.count = 1
    clicks.press("link", "Open in admin")
    page.get_by_label("Label key 2").fill("zone")
    page.get_by_label("Taint key 2").fill("maintenance")
    clicks.press("button", "Save and continue editing", within="body")
    clicks.press("link", "Drain", within="body")
    assert clicks.count <= 4

    # All of it in the admin, from its start page.
    page.goto("/admin/")
    clicks.count = 0
    clicks.press("link", "Member clusters", within="body")
    clicks.press("link", "Add member cluster", within="body")
    page.get_by_label("Name:", exact=True).first.fill("another")
    page.get_by_label("Label key 1").fill("region")
    page.get_by_label("Label value 1").fill("west")
    page.get_by_label("Taint key 1").fill("dedicated")
    clicks.press("button", "Save", within="body")
    clicks.press("link", "Drain", within="body")
    clicks.press("button", "Drain another")
    expect(page).to_have_url(re.compile("/admin/clusters/membercluster/"))
    expect(page.locator(".messagelist")).to_have_text(
        "Drain of another started. Progress and result"
    )
    assert clicks.count <= 5
    clicks.press("link", "Progress and result", within="body")
    expect(main).to_contain_text("Drain progress")
    another = MemberCluster.objects.get(name="another")
    assert another.document["metadata"]["labels"] == {"region": "west"}
    assert another.taints.filter(key="dedicated").exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_staged_run_with_an_approval_takes_eight_clicks_for_a_new_placement(
    enter: Enter, work: Callable[[], None]
) -> None:
    User.objects.create_superuser("root", password="a long enough password")
    page = enter("/", name="root")
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", "Placements", within="nav")
    clicks.press("link", "Create placement")
    page.locator('[name="metadata.name"]').fill("shop")
    page.get_by_label("Resource on the hub").press_sequentially("v1 Namespace hello")
    clicks.press("button", "Select resource")
    expect(page.locator('[name="spec.resourceSelectors[0].name"]')).to_have_value(
        "hello"
    )
    page.get_by_label("External (staged update runs)").check(force=True)
    clicks.count += 1
    expect(page.locator("#preview")).to_contain_text("staged update run")
    clicks.press("button", "Review changes")
    clicks.press("button", "Save shop")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Start staged update run of shop"
    )
    clicks.press("button", "Start run")
    expect(page).to_have_url(re.compile("/rollouts/staged/runs/shop-1/$"))
    approve = main.get_by_role("button", name="Approve stage")
    for _ in range(60):  # a simulated cluster is ready some seconds after an apply
        if approve.is_visible():
            break
        work()
        page.wait_for_timeout(500)
    clicks.press("button", "Approve stage")
    expect(main).to_contain_text("Approved")
    assert clicks.count <= 8


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_pasted_manifest_is_applied_with_the_third_click(enter: Enter) -> None:
    page = enter("/", "operator")
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", "Resources", within="nav")
    clicks.press("link", "Apply YAML")
    page.get_by_label("Manifests").fill(dump_yaml(config_map("flags", in_="web")))
    expect(page.locator(".objects")).to_contain_text("Would be created")
    clicks.press("button", "Apply")

    expect(main.get_by_role("heading", level=1)).to_have_text("1 document applied")
    assert clicks.count == 3


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_placement_over_regions_is_created_with_the_fourth_click(
    enter: Enter, work: Callable[[], None]
) -> None:
    page = enter("/", "operator")
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", "Placements", within="nav")
    clicks.press("link", "Create placement")
    page.locator('[name="metadata.name"]').fill("shop")
    page.get_by_label("Number of clusters").fill("4")
    page.get_by_label("Resource on the hub").press_sequentially("hello")
    clicks.press("button", "Review changes")
    clicks.press("button", "Save shop")
    work()

    assert clicks.count == 4
    shop = Placement.objects.get(name="shop")
    assert shop.placed_count == 4
    expect(main).to_contain_text("region skew 0")


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("javascript", [True, False])
def test_a_staged_run_of_a_rolling_placement_starts_from_the_rollouts(
    enter: Enter, work: Callable[[], None], *, javascript: bool
) -> None:
    User.objects.create_superuser("root", password="a long enough password")
    page = enter("/", name="root", javascript=javascript)
    clicks, main = Clicks(page), page.locator("main")

    clicks.press("link", re.compile("^Rollouts"), within="nav")
    clicks.press("link", "Start staged run")
    clicks.press("link", "web")
    expect(main).to_contain_text("Revision 3 (latest)")  # 2, and the change to External
    page.get_by_label(re.compile("^Change the rollout strategy of web")).check()
    clicks.count += 1
    clicks.press("button", "Start run")
    expect(page).to_have_url(re.compile("/rollouts/staged/runs/web-1/$"))
    approve = main.get_by_role("button", name="Approve stage")
    for _ in range(60):
        if approve.is_visible():
            break
        work()
        page.reload()
    expect(main).to_contain_text("revision 3")
    clicks.press("button", "Approve stage")
    expect(main).to_contain_text("Approved")
    assert clicks.count <= 8
