"""`kubectl fleetui` without a console: the hub of the kubeconfig is read, projected and replayed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetui import __version__
from fleetui.apimachinery.yaml import dump_yaml
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import FakeHub, serve_hub
from tests.hubs.hub_documents import PREFIX, binding, member, placement, snapshot
from tests.hubs.test_connecting import TOKEN, kubeconfig
from tests.runtime.processes import ROOT

EMPTY = f"empty-{__version__}.sqlite3"
PLUGIN = "import sys; from placements.client.main import main; main(['kubectl-fleetui', *sys.argv[1:]])"


def decided_hub() -> FakeHub:
    """Return a hub whose scheduler has selected c0 and c1 of three clusters for `web`, just now."""
    fake, now = FakeHub(), datetime.now(UTC)
    written = f"{now:%Y-%m-%dT%H:%M:%SZ}"
    for name in ("c0", "c1", "c2"):
        fake.put("memberclusters", member(name, heartbeat=written))
    fake.put("clusterresourceplacements", placement("web"))
    latest = snapshot("web")
    latest["metadata"]["annotations"] = {
        f"{PREFIX}CRP-generation": "1",
        f"{PREFIX}number-of-clusters": "2",
    }
    condition = {
        "type": "Scheduled",
        "status": "True",
        "reason": "SchedulingPolicyFulfilled",
        "message": "found all cluster needed as specified by the scheduling policy",
        "observedGeneration": 1,
        "lastTransitionTime": written,
    }
    targets = [
        {
            "clusterName": name,
            "selected": True,
            "clusterScore": {"affinityScore": 0, "priorityScore": 0},
            "reason": f"picked by scheduling policy, cluster {name}",
        }
        for name in ("c0", "c1")
    ]
    latest["status"] = {
        "observedCRPGeneration": 1,
        "conditions": [condition],
        "targetClusters": targets,
    }
    fake.put("clusterschedulingpolicysnapshots", latest)
    for name in ("c0", "c1"):
        one = binding("web", name, state="Bound")
        one["spec"]["clusterDecision"]["clusterScore"] = {
            "affinityScore": 0,
            "priorityScore": 0,
        }
        fake.put("clusterresourcebindings", one)
    return fake


@pytest.fixture
def served() -> Iterator[tuple[FakeHub, LocalServer]]:
    with serve_hub(decided_hub()) as found:
        yield found


def kubectl(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLEETUI_", "DATABASE_URL", "XDG_", "KUBECONFIG"))
    }
    return subprocess.run(
        [sys.executable, "-c", PLUGIN, *words],
        cwd=ROOT,
        env=kept | {"HOME": str(home), "TMPDIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "is_first", [False, pytest.param(True, marks=pytest.mark.nightly)]
)
def test_the_hub_of_the_kubeconfig_is_listed_replayed_and_explained(
    is_first: bool,
    served: tuple[FakeHub, LocalServer],
    tmp_path: Path,
    empty_hub: Path | None,
) -> None:
    """The first call of a version makes its tables, which takes 10 s, and keeps a copy."""
    fake, server = served
    folder = tmp_path / ".kube"
    folder.mkdir()
    if empty_hub and not is_first:
        (tmp_path / ".cache" / "fleetui").mkdir(parents=True)
        shutil.copy2(empty_hub, tmp_path / ".cache" / "fleetui" / EMPTY)
    (folder / "config").write_text(dump_yaml(kubeconfig(server.url, token=TOKEN)))

    listed = kubectl("get", "placements", "-o", "name", home=tmp_path)
    replayed = kubectl("replay", "web", "-o", "json", home=tmp_path)
    why = kubectl("why", "web", "c2", home=tmp_path)

    assert (listed.stdout, listed.stderr) == ("placement/web\n", "")
    # The words of the fake hub are not those of a scheduler: a replay of them is never certain.
    assert replayed.returncode == 0, replayed
    document = json.loads(replayed.stdout)
    assert document["agreement"] == "uncertain"
    assert document["message"] == "The inputs of that moment were not observed"
    assert why.stdout.startswith("c2: outranked (decision d-"), why
    assert "numberOfClusters 3 (now 2) (selects c2)" in why.stdout
    assert {seen.verb for seen in fake.seen}.isdisjoint({"put", "patch", "delete"})
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(left) == ["config", EMPTY]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("get", "placements"), "no kubeconfig"),
        (("get", "placements", "--server", "fleet"), "a token is needed"),
        (("burn", "web"), "usage: kubectl fleetui"),
    ],
)
def test_without_a_hub_it_says_what_is_missing(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    refused = kubectl(*words, home=tmp_path)

    assert refused.returncode == 2
    assert message in refused.stderr
