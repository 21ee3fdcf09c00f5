"""Print the size of the product by area, as in docs/adr/0021: `python -m tests.load.code_size`."""

import re
from collections import Counter
from fnmatch import fnmatch

import grimp

from tests.source_code import PRODUCT, ROOT, TESTS, functions, one_caller_functions

FIRST_EDITION = "Features of the first edition"
# What was added after the first edition, by modules; the first area that matches counts.
AREAS = {
    "Kubernetes clusters": (
        "*/cluster_objects.py",
        "*/connection*.py",
        "*/credential*.py",
        "*/dry_runs.py",
        "clusters/drivers/kubernetes/*",
        "clusters/kubeconfig.py",
        "clusters/kubernetes_drivers.py",
        "clusters/preparation.py",
        "placements/engine/envelopes.py",
        "placements/client/members.py",
        "placements/services/rollouts/read_objects.py",
    ),
    "Writes to live hubs": (
        "placements/hubs/writing/*",
        "placements/hubs/write_*.py",
        "placements/hubs/*/write*.py",
        "placements/hubs/api/objects.py",
        "placements/hubs/actions.py",
    ),
    "Console, second edition": (
        "*/bulk_changes.py",
        "*/inbox.py",
        "placements/api/manifest_schema.py",
        "placements/services/dashboard/causes.py",
        "placements/services/dashboard/navigation.py",
        "placements/services/editor/hints.py",
        "placements/web/disruptions.py",
        "placements/web/fleet_map.py",
    ),
    "Live hubs": (
        "*/commands/*hub*.py",
        "*/hubs.py",
        "*/hubs/*",
        "clusters/hub_state.py",
        "clusters/models/mirror.py",
        "fleetui/hub_scope.py",
        "placements/engine/scheduling/filters/namespace_affinity.py",
        "placements/hubs/explain/agreements.py",
        "placements/models/full_names.py",
        "placements/models/hub_decisions.py",
    ),
    "Accounts and security": (
        "*/authentication.py",
        "*/tokens.py",
        "fleetui/access/*",
        "fleetui/accounts/*",
        "fleetui/encryption.py",
        "fleetui/management/commands/end_sessions.py",
        "fleetui/private_files.py",
        "fleetui/role_names.py",
        "fleetui/sealed_rows.py",
        "placements/services/teams.py",
        "placements/web/users.py",
    ),
    "Notifications": ("*/channels.py", "*/notifications*"),
    "Production": (
        "*/backup.py",
        "*/metrics.py",
        "fleetui/management/commands/restore.py",
        "fleetui/__main__.py",
        "fleetui/command_line.py",
        "fleetui/locations.py",
        "fleetui/logs.py",
        "fleetui/management/commands/prepare.py",
        "fleetui/monitoring.py",
        "fleetui/otel.py",
        "fleetui/remote.py",
        "fleetui/request_ids.py",
        "fleetui/tracing.py",
    ),
    "Foresight: exact search and few moves": (
        "*/exact.py",
        "*/exact_process.py",
        "*/moves.py",
        "placements/engine/exact/*",
    ),
    "Foresight: loss of clusters": (
        "*/loss*",
        "*/what_if*",
        "placements/models/resilience.py",
    ),
    "Foresight: difference of revisions": (
        "placements/explain/sarif.py",
        "placements/explain/impact.py",
        "placements/management/impact_command.py",
        "placements/services/impact/*",
    ),
    "Foresight: assertions and checks": ("*/assertions.py", "*/checks*"),
    "Foresight: forecast": ("*/forecast*.py",),
}


def area_of(name: str) -> str:
    """Return the area of a module by its path; modules that several areas share are of the first edition."""
    return next(
        (
            area
            for area, patterns in AREAS.items()
            if any(fnmatch(name, pattern) for pattern in patterns)
        ),
        FIRST_EDITION,
    )


def main() -> None:
    """Print the table of areas and the measures of the whole."""
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for module in PRODUCT:
        modules[area_of(module.name)] += 1
        lines[area_of(module.name)] += module.text.count("\n")
    print("| area | modules | lines |\n|---|---:|---:|")
    for area in (FIRST_EDITION, *AREAS, None):
        size = (
            (modules[area], lines[area]) if area else (modules.total(), lines.total())
        )
        print(f"| {area or '**Total**'} | {size[0]:,} | {size[1]:,} |")

    total = sum(1 for module in PRODUCT for _ in functions(module.tree))
    alone = sum(1 for module in PRODUCT for _ in one_caller_functions(module))
    packages = {module.path.relative_to(ROOT).parts[0] for module in PRODUCT}
    graph = grimp.build_graph(*sorted(packages))
    folders = {module: module.rpartition(".")[0] or module for module in graph.modules}
    imports = {
        (folders[module], folders[other])
        for module in graph.modules
        for other in graph.find_modules_directly_imported_by(module)
    }
    tests = sum(
        len(re.findall(r"^\s*(?:async )?def test_", module.text, re.MULTILINE))
        for module in TESTS
    )
    print(
        f"\nfunctions: {total:,}; private ones with one caller: {100 * alone / total:.1f} %"
    )
    print(f"imports between packages: {sum(one != other for one, other in imports):,}")
    print(f"test functions: {tests:,}")


if __name__ == "__main__":
    main()
