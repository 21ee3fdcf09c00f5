"""The output of Kustomize is accepted by an API server, and its controllers make what it describes."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CHART, SETS, helm, render
from tests.kubernetes.members import (
    Administrator,
    Member,
    kube_version,
    kubectl,
    policy_version,
)
from tests.runtime.processes import ROOT, eventually

OVERLAYS = ROOT / "deploy" / "kubernetes" / "overlays"
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
    for program in (kubectl(), shutil.which("kubectl")):
        if program is None:
            continue
        probe = subprocess.run(
            [program, "kustomize", base], capture_output=True, text=True, check=False
        )
        if probe.returncode == 0:
            return program
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
        one["metadata"]["labels"] for one in admin.get(f"{namespace}/pods")["items"]
    ]
    assert len([one for one in labels if selected.items() <= one.items()]) == 3
    budgets = admin.get(
        f"/apis/policy/{policy_version()}/namespaces/production/poddisruptionbudgets"
    )["items"]
    assert {one["metadata"]["name"] for one in budgets} == {
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
    unknown = [{**one, "sepc": {}} for one in rendered["default"][:1]]
    assert ".sepc: field not declared in schema" in strictly(config, unknown)


def test_helm_installs_upgrades_and_rolls_back(
    admin: Administrator, clusters: Path
) -> None:
    restricted(admin)
    config = ["--kubeconfig", str(clusters / "c1" / "kubeconfig")]
    release = [*config, "--namespace", "fleetui"]

    def run(*arguments: str) -> str:
        done = helm(*arguments, *release)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pods() -> Counter[str]:
        found = admin.get("/api/v1/namespaces/fleetui/pods")["items"]
        return Counter(
            one["metadata"]["labels"]["app.kubernetes.io/component"] for one in found
        )

    def has_pods(wanted: Counter[str]) -> bool | None:
        return pods() == wanted or None

    def jobs() -> list[str]:
        found = admin.get("/apis/batch/v1/namespaces/fleetui/jobs")["items"]
        return [one["metadata"]["name"] for one in found]

    notes = run(
        "install", "fleetui", str(CHART), "--set", "serviceMonitor.enabled=true"
    )
    eventually(partial(has_pods, Counter(web=2, worker=2, beat=1, migrate=1)))
    assert "create secret generic fleetui" in notes
    assert "job/fleetui-migrate-1 " in notes

    run("upgrade", "fleetui", str(CHART), "--set", "worker.replicas=3")
    eventually(partial(has_pods, Counter(web=2, worker=3, beat=1, migrate=1)))
    assert jobs() == ["fleetui-migrate-2"]

    run("rollback", "fleetui", "1")
    eventually(partial(has_pods, Counter(web=2, worker=2, beat=1, migrate=1)))
    assert jobs() == ["fleetui-migrate-1"]
