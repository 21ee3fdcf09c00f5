"""The output of Kustomize is accepted by an API server, and its controllers make what it describes."""

import os
import re
import shutil
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import SETS, render
from tests.deploy.tools import program
from tests.kubernetes.members import (
    Administrator,
    Member,
    kube_version,
    kubectl,
    policy_version,
)
from tests.runtime.processes import ROOT, eventually

OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"
GUIDE = ROOT / "docs" / "guides" / "helm.md"
MONITORS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(kind: str) -> dict[str, Any]:
    """Return the definition of a kind of the operator of Prometheus, with any fields."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": f"{kind.lower()}s",
                "singular": kind.lower(),
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


DEFINITIONS = [definition(kind) for kind in ("ServiceMonitor", "PrometheusRule")]


def kustomizer() -> str | None:
    """Return a kubectl whose Kustomize knows `labels`: that of an old version of the servers does not."""
    base = str(ROOT / "deploy" / "kubernetes" / "base")
    for client in (kubectl(), shutil.which("kubectl")):
        if client is None:
            continue
        probe = subprocess.run(
            [client, "kustomize", base], capture_output=True, text=True, check=False
        )
        if probe.returncode == 0:
            return client
    return None


@pytest.fixture(scope="module")
def prometheus_kinds(member: Member) -> Iterator[Administrator]:
    """Define the kinds of the operator of Prometheus in a cluster; return its administrator."""
    found = Administrator(member.client())
    names = [one["metadata"]["name"] for one in DEFINITIONS]
    for one in DEFINITIONS:
        found.create(MONITORS, one)

    def serves_all() -> bool:
        served = found.call("GET", "/apis/monitoring.coreos.com/v1")
        return len((served.body or {}).get("resources", ())) == len(names)

    eventually(serves_all)
    yield found
    for name in names:
        found.delete(f"{MONITORS}/{name}")


@pytest.fixture
def admin(prometheus_kinds: Administrator) -> Iterator[Administrator]:
    yield prometheus_kinds
    for namespace in ("evaluation", "production", "fleetui"):
        prometheus_kinds.purge_namespace(namespace)


def test_overlays_are_applied_and_their_pods_are_made(
    admin: Administrator, clusters: Path
) -> None:
    program = kustomizer()
    if program is None:
        pytest.skip("needs a kubectl with Kustomize 4.1 or newer")
    served = ("apiVersion: policy/v1\n", f"apiVersion: policy/{policy_version()}\n")
    client = [kubectl(), "--kubeconfig", str(clusters / "c1" / "kubeconfig")]

    def apply(text: str) -> list[str]:
        command = [*client, "apply", "--server-side", "-f", "-"]
        run = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()

    def pods(namespace: str) -> Counter[str]:
        found = admin.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return Counter(
            one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found
        )

    def has_pods(namespace: str, wanted: Counter[str]) -> bool | None:
        return pods(namespace) == wanted or None

    # One is applied twice: nothing in it is refused the second time.
    for overlay, count in (("evaluation", 1), ("evaluation", 1), ("production", 3)):
        build = [program, "kustomize", str(OVERLAYS / overlay)]
        built = subprocess.run(build, capture_output=True, text=True, check=True)
        # Each in a namespace of its own: an update would wait for pods that no kubelet lets get ready.
        written = [
            one for one in yaml.safe_load_all(built.stdout.replace(*served)) if one
        ]
        for one in written:
            name = "name" if one["kind"] == "Namespace" else "namespace"
            assert one["metadata"][name] == "fleetui"
            one["metadata"][name] = overlay
        assert len(apply(yaml.safe_dump_all(written))) == len(written)
        wanted = Counter(web=count, worker=count, beat=1, migrate=1)
        eventually(partial(has_pods, overlay, wanted))

    namespace = "/api/v1/namespaces/production"
    selected = admin.get(f"{namespace}/services/fleetui")["spec"]["selector"]
    labels = [
        item["metadata"]["labels"] for item in admin.get(f"{namespace}/pods")["items"]
    ]
    assert len([label for label in labels if selected.items() <= label.items()]) == 3
    budgets = admin.get(
        f"/apis/policy/{policy_version()}/namespaces/production/poddisruptionbudgets"
    )["items"]
    assert {budget["metadata"]["name"] for budget in budgets} == {
        "fleetui-web",
        "fleetui-worker",
    }


def restricted(admin: Administrator) -> None:
    """Make the namespace, which warns of and refuses pods that need more rights than they should have."""
    labels = {
        f"pod-security.kubernetes.io/{mode}": "restricted"
        for mode in ("warn", "enforce")
    }
    metadata = {"name": "fleetui", "labels": labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    admin.create("/api/v1/namespaces", body)


def strictly(config: Path, objects: list[dict[str, Any]]) -> str:
    """Apply objects without writing them; return what the API server says against them."""
    command = [kubectl(), "--kubeconfig", str(config), "--namespace=fleetui"]
    command += [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
    ]
    text = yaml.safe_dump_all(objects)
    run = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False
    )
    count = len(run.stdout.splitlines())
    return run.stderr or ("" if count == len(objects) else run.stdout)


@pytest.mark.skipif(kube_version() < (1, 25), reason="needs strict validation of 1.25")
def test_an_api_server_accepts_every_field_of_chart_and_overlays(
    admin: Administrator, clusters: Path, tmp_path: Path
) -> None:
    restricted(admin)
    config = clusters / "c1" / "kubeconfig"
    rendered = {name: render(tmp_path, values) for name, values in SETS.items()}
    for overlay in ("evaluation", "production"):
        build = [kubectl(), "kustomize", str(OVERLAYS / overlay)]
        built = subprocess.run(build, capture_output=True, text=True, check=True)
        rendered[overlay + " overlay"] = list(yaml.safe_load_all(built.stdout))

    found = {name: strictly(config, objects) for name, objects in rendered.items()}

    assert {name: words for name, words in found.items() if words} == {}
    unknown = [{**document, "sepc": {}} for document in rendered["default"][:1]]
    assert ".sepc: field not declared in schema" in strictly(config, unknown)


class Reader:
    """A user who follows the guide in an empty folder, with Helm and kubectl for one cluster."""

    def __init__(self, folder: Path, config: Path) -> None:
        self.folder = folder
        places = [str(Path(kubectl()).parent), str(folder / "bin")]
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(config),
            "PATH": ":".join([*places, os.environ["PATH"]]),
        }
        (folder / "bin").mkdir()
        (folder / "bin" / "helm").symlink_to(program("helm"))
        (folder / "deploy").symlink_to(ROOT / "deploy")

    def enter(self, section: str) -> str:
        """Save the files of a section of the page and enter its commands; return what Helm printed last."""
        text = GUIDE.read_text().split(f"\n## {section}\n")[1].partition("\n## ")[0]
        files = re.findall(r"Save this as `(\S+)`.*?```\n(.*?)```", text, re.DOTALL)
        for name, content in files:
            (self.folder / name).write_text(textwrap.dedent(content))
        printed = ""
        for command in re.findall(r"^ *\$ (.*)$", text, re.MULTILINE):
            # No kubelet runs the pods here.
            if not re.search(r" wait --for| rollout status ", command):
                printed = self.run(command)
        return printed

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def test_helm_installs_upgrades_rolls_back_and_removes_as_the_guide_says(
    admin: Administrator, clusters: Path, tmp_path: Path
) -> None:
    reader = Reader(tmp_path, clusters / "c1" / "kubeconfig")
    namespace = "/api/v1/namespaces/fleetui"

    def has_pods(wanted: Counter[str]) -> bool | None:
        found = admin.get(f"{namespace}/pods")["items"]
        parts = [
            one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found
        ]
        return Counter(parts) == wanted or None

    def written() -> dict[str, int]:
        """Return the numbers of pods that the Deployments want, and the Jobs."""
        deployments = admin.get("/apis/apps/v1/namespaces/fleetui/deployments")
        jobs = admin.get("/apis/batch/v1/namespaces/fleetui/jobs")
        return {
            one["metadata"]["name"]: one["spec"].get("replicas", 0)
            for one in [*deployments["items"], *jobs["items"]]
        }

    printed = reader.enter("Install")
    eventually(partial(has_pods, Counter(web=2, worker=2, beat=1, migrate=1)))
    assert "job/fleetui-migrate-1 " in printed
    assert "Open https://fleet.example.com/ and sign in" in printed

    reader.enter("Values")
    sizes = {"fleetui-web": 3, "fleetui-worker": 2, "fleetui-beat": 1}
    assert written() == {**sizes, "fleetui-migrate-2": 0}

    # As the guide of upgrades says for a version that removed something.
    reader.run("kubectl --namespace fleetui scale deployment --all --replicas 0")
    reader.run("helm rollback fleetui 1 --namespace fleetui")
    sizes["fleetui-web"] = 2
    assert written() == {**sizes, "fleetui-migrate-1": 0}

    reader.enter("Upgrade, roll back, remove")
    eventually(partial(has_pods, Counter()))
    assert written() == {}
    secrets = admin.get(f"{namespace}/secrets")["items"]
    assert [secret["metadata"]["name"] for secret in secrets] == ["fleetui"]
