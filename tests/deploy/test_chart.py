"""The chart renders, says what the plain manifests say, and rejects values that it does not know."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetui import __version__
from fleetui.env import Variables, variable_name
from tests.deploy.chart import CHART, SETS, helm, render
from tests.deploy.test_manifests import BASE, IN_KUBERNETES, manifests

COMPONENT = "app.kubernetes.io/component"
OF_THE_CHART = "app.kubernetes.io/instance"


def plain(value: Any) -> Any:
    """Return an object without labels of Helm and without the image, which an overlay sets."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: plain(one)
        for key, one in value.items()
        if key not in ("image", "imagePullPolicy", OF_THE_CHART)
    }
    if "labels" in kept:
        labels = kept["labels"]
        kept["labels"] = {key: labels[key] for key in labels if key == COMPONENT}
    if "checksum/settings" in kept.get("annotations", {}):
        del kept["annotations"]
    if "env" in kept:
        kept["env"] = sorted(kept["env"], key=lambda one: str(one["name"]))
    return {key: one for key, one in kept.items() if one != {} or key != "labels"}


def by_name(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the plain objects by kind and name; the Job of a release has its revision in the name."""
    objects = {}
    for one in map(plain, found):
        metadata = one["metadata"]
        metadata["name"] = metadata["name"].removesuffix("-1")
        objects[f"{one['kind']}/{metadata['name']}"] = one
    return objects


def test_the_chart_and_the_plain_manifests_say_the_same(tmp_path: Path) -> None:
    overlay = BASE.parent / "overlays" / "production"
    monitor = yaml.safe_load((overlay / "service-monitor.yaml").read_text())
    owner = by_name([*manifests(), monitor])

    chart = by_name(render(tmp_path, {"serviceMonitor": {"enabled": True}}))

    assert chart.keys() == owner.keys()
    different = {name for name in owner if chart[name] != owner[name]}
    assert {name: (chart[name], owner[name]) for name in different} == {}


@pytest.mark.parametrize("name", SETS)
def test_what_is_rendered_holds_together(name: str, tmp_path: Path) -> None:
    found = render(tmp_path, SETS[name])
    named = {(document["kind"], document["metadata"]["name"]) for document in found}
    known = {variable_name(field) for field in Variables.model_fields} | IN_KUBERNETES
    settings = next(
        document["data"]
        for document in found
        if (document["kind"], document["metadata"]["name"]) == ("ConfigMap", "fleetui")
    )

    assert len(named) == len(found)
    beats = [
        document["spec"]["replicas"]
        for document in found
        if document["metadata"]["name"].endswith("-beat")
        and document["kind"] == "Deployment"
    ]
    assert beats == [1]
    assert "" not in settings.values()
    for document in found:
        if document["kind"] not in ("Deployment", "Job"):
            continue
        (container,) = document["spec"]["template"]["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        assert len(names) == len(set(names))
        assert set(names) <= known
        for variable in container["env"]:
            source = variable.get("valueFrom", {}).get("configMapKeyRef", {})
            assert source.get("key", "HOSTS") in settings


def test_secrets_of_operators_are_used(tmp_path: Path) -> None:
    web = next(
        document
        for document in render(tmp_path, SETS["operators"])
        if document["metadata"]["name"] == "fleetui-web"
        and document["kind"] == "Deployment"
    )
    (container,) = web["spec"]["template"]["spec"]["containers"]

    sources = {
        one["name"]: tuple(one["valueFrom"]["secretKeyRef"].values())[:2]
        for one in container["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }

    assert sources == {
        "DATABASE_URL": ("fleetui-db-app", "uri"),
        "CELERY_BROKER_URL": ("fleetui-redis", "url"),
        "FLEETUI_SECRET_KEY": ("console", "FLEETUI_SECRET_KEY"),
        "FLEETUI_CREDENTIAL_KEYS": ("console", "FLEETUI_CREDENTIAL_KEYS"),
        "FLEETUI_METRICS_TOKEN": ("console", "FLEETUI_METRICS_TOKEN"),
    }


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("beat.replicas=2", "at '/beat': additional properties 'replicas' not allowed"),
        ("web.replicas=0", "at '/web/replicas': minimum: got 0, want 1"),
        ("ingres.enabled=true", "additional properties 'ingres' not allowed"),
        ("hosts=null", "missing property 'hosts'"),
        ("secret.create=true", "at '/secret/values': missing properties"),
        ("trustedProxies[0]=proxy.local", "at '/trustedProxies/0'"),
        ("image.digest=latest", "at '/image/digest'"),
    ],
)
def test_wrong_values_are_rejected_with_their_path(value: str, words: str) -> None:
    run = helm("template", CHART, "--set", value)

    assert (run.returncode, words in run.stderr) == (1, True), run.stderr


def test_every_value_is_in_the_schema_and_helm_finds_no_fault() -> None:
    run = helm("lint", CHART, "--strict")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    used = {
        match
        for path in (CHART / "templates").iterdir()
        for match in re.findall(r"\.Values\.(\w+)", path.read_text())
    } | {"migrate", "beat"}  # by the name of their part
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert run.returncode == 0, run.stdout + run.stderr
    assert chart["appVersion"] == __version__
    assert values.keys() == used


def test_a_package_has_the_alerts_and_the_dashboard(tmp_path: Path) -> None:
    package = helm("package", CHART, "--destination", tmp_path)
    (archive,) = tmp_path.glob("*.tgz")
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(SETS["everything"]))
    run = helm("template", "fleetui", archive, "--values", values)
    found = {
        one["kind"]: one["spec"]
        for one in yaml.safe_load_all(run.stdout)
        if one and one["kind"] == "PrometheusRule"
    }

    assert package.returncode == 0, package.stderr
    alerts = (CHART.parents[1] / "monitoring" / "alerts.yaml").read_text()
    assert found == {"PrometheusRule": yaml.safe_load(alerts)}
