"""The files of each feature: `python -m tests.features` prints the table of docs/contributing/layout.md."""

from collections import defaultdict
from fnmatch import fnmatch

from tests.source_code import PRODUCT, ROOT

# The first feature with a pattern that matches has the file. What no pattern matches is shared.
FEATURES = {
    "Live hubs": (
        "placements/hubs/*",
        "templates/hubs/*",
        "clusters/hub_*",
        "clusters/models/hubs.py",
        "clusters/models/mirror.py",
    ),
    "Staged updates": ("*stage*",),
    "Rollouts": (
        "*rollout*",
        "*dry_run*",
        "*removals*",
        "*run_history*",
    ),
    "Decisions": (
        "*decision*",
        "*/scheduling/*",
        "*/scheduling.py",
        "*why_not*",
        "*outcomes*",
        "*comparison*",
        "*scores*",
        "*spread*",
    ),
    "Exact search": ("*exact*",),
    "Advice": ("*advice*",),
    "Checks": (
        "*checks*",
        "*sarif*",
        "*doctor*",
        "*assertions*",
        "*gates*",
        "*hygiene*",
    ),
    "What-if": (
        "*what_if*",
        "*resilience*",
        "*loss*",
        "*impact*",
        "*scenarios*",
    ),
    "Reschedule": (
        "*reschedul*",
        "*moves*",
    ),
    "Drains and evictions": (
        "*drain*",
        "*evict*",
        "*disruption*",
    ),
    "Overrides": ("*override*",),
    "Resources": (
        "*resource*",
        "*apply*",
        "*prun*",
        "*snapshots*",
        "*export*",
        "*cluster_objects*",
        "*/objects.py",
        "*envelopes*",
    ),
    "Notifications": (
        "*notification*",
        "*channels*",
    ),
    "Connections": (
        "*connection*",
        "*credential*",
        "*kubeconfig*",
        "*preparation*",
        "*join*",
    ),
    "Drivers": (
        "clusters/drivers/*",
        "*driver*",
    ),
    "Clusters": (
        "*cluster*",
        "*bulk_changes*",
        "*/fleet/*",
        "*fleet_snapshot*",
    ),
    "Editor": (
        "*editor*",
        "*draft*",
        "*review*",
        "*completion*",
    ),
    "Status and problems": (
        "*problems*",
        "*inbox*",
        "*/status*",
        "*health*",
        "*conditions*",
        "*hub_status*",
        "*badges*",
    ),
    "Overview": (
        "*dashboard*",
        "*overview*",
        "*fleet_map*",
        "charts/fleet*",
        "*/charts/fleet*",
    ),
    "Activity": (
        "*activity*",
        "*history*",
        "*events*",
    ),
    "Simulation": (
        "*simulate*",
        "*searching*",
    ),
    "Demo": (
        "*demo*",
        "*fault*",
    ),
    "Accounts and access": (
        "*access*",
        "*account*",
        "*users*",
        "*teams*",
        "*tokens*",
        "*permissions*",
        "*secret*",
        "*authentic*",
    ),
    "Placements": (
        "*placement*/*placements*",
        "*policy*",
        "*selection*",
        "*strategy*",
        "*binding*",
        "*affinity*",
        "*ocm*",
        "manifests/placement.py",
        "templates/placements/*",
    ),
}
SHARED = "Shared"


def files_of_features() -> dict[str, list[str]]:
    """Return the files of each feature: modules of the product and templates."""
    names = [
        module.name for module in PRODUCT if not module.name.endswith("__init__.py")
    ]
    names += [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "templates").rglob("*.html")
    ]
    found = defaultdict(list)
    for name in sorted(names):
        path = (
            name.removeprefix("placements/")
            if not name.startswith("placements/hubs/")
            else name
        )
        matching = (
            feature
            for feature, patterns in FEATURES.items()
            if any(
                fnmatch(path, pattern) or fnmatch(name, pattern) for pattern in patterns
            )
        )
        found[next(matching, SHARED)].append(name)
    return found


def table() -> str:
    """Return the table: modules, templates and folders of each feature, and its folders by name."""
    rows = [
        "| feature | modules | templates | folders | where |",
        "|---|---:|---:|---:|---|",
    ]
    files = files_of_features()
    for feature in (*FEATURES, SHARED):
        modules = [name for name in files[feature] if name.endswith(".py")]
        templates = [name for name in files[feature] if name.endswith(".html")]
        folders = sorted({name.rpartition("/")[0] for name in files[feature]})
        where = "" if feature == SHARED else ", ".join(f"`{name}`" for name in folders)
        rows.append(
            f"| {feature} | {len(modules)} | {len(templates)} | {len(folders)} | {where} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())  # noqa: T201  # a report
