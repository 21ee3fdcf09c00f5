"""Where the photographer goes: the ten main pages, and some more to look at."""

import re

from playwright.sync_api import Page

from tests.screenshots.console import Console

MAIN = (
    "overview",
    "clusters",
    "cluster",
    "topology",
    "placement",
    "editor",
    "decision",
    "rollout",
    "what-if",
    "compare",
)
"""The pages that are always photographed; those of the fleet of 9 are kept."""
Addresses = dict[str, str]


def addresses(page: Page, console: Console) -> Addresses:
    """Prepare what is to be seen, as a person would, and return the address of each page by its name."""
    name, decisions = console.placement, console.decisions()
    decision = max(decisions, key=lambda one: one["picked"])["id"]
    run = console.run()
    assert run
    member = _a_cluster(console, decision)
    labels = console.get(f"clusters/{member}")["metadata"]["labels"]
    second = "env" if "env" in labels else "system"
    found = {
        "overview": "/",
        "clusters": "/clusters/",
        "cluster": f"/clusters/{member}/",
        "topology": f"/topology/?key=region&key2={second}",
        "placement": f"/placements/{name}/",
        "editor": _draft(page, name),
        "decision": f"/decisions/{decision}/?step=2&cluster={member}",
        "rollout": f"/rollouts/{name}/{run['number']}/",
        "what-if": f"/what-if/?label=region:{labels['region']}",
        "compare": f"/placements/{name}/compare/{decisions[1]['id']}..{decisions[0]['id']}/",
    }
    assert tuple(found) == MAIN
    return found | _more(name, run["number"], decision, member)


def _more(name: str, run: int, decision: str, member: str) -> Addresses:
    return {
        "placements": "/placements/",
        "why-not": f"/decisions/{decision}/clusters/{member}/",
        "rollouts": "/rollouts/",
        "history": f"/placements/{name}/history/",
        "plan": f"/rollouts/{name}/{run}/plan/",
        "rollout-steps": f"/rollouts/{name}/{run}/",
        "rollout-clusters": f"/rollouts/{name}/{run}/clusters/",
        "drain": f"/clusters/{member}/drain/",
    }


def _a_cluster(console: Console, decision: str) -> str:
    """Name a cluster of which people ask why it was not picked: one that lost its place, or was outranked."""
    outcomes = console.get(f"decisions/{decision}/clusters?limit=500")["items"]
    for wanted in ("unscheduled", "outranked"):
        for outcome in outcomes:
            if outcome["outcome"] == wanted:
                return str(outcome["cluster"])
    return str(outcomes[0]["cluster"])


def _draft(page: Page, name: str) -> str:
    """Start a draft that wants one cluster more."""
    page.goto(f"/placements/{name}/edit/")
    number = page.get_by_label("Number of clusters")
    number.fill(str(int(number.input_value()) + 1))
    page.wait_for_url(re.compile(r"/drafts/\d+/"))
    return _path(page)


def _path(page: Page) -> str:
    return "/" + page.url.split("/", 3)[3]
