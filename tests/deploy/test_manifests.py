"""The files in deploy/ agree with the product and with each other: settings, arguments, ports, users."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from fleetui import __version__
from fleetui.env import Variables, variable_name
from fleetui.monitoring import CHECKS, FOLDER, PROBES
from tests.deploy.image import instructions
from tests.runtime.processes import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = list(instructions((DEPLOY / "Dockerfile").read_text()))
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
BASE = DEPLOY / "kubernetes" / "base"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PORT, USER = "8000", "10001"
OTHERS = {"POSTGRES_PASSWORD", "REDIS_PASSWORD"}
OF_PYTHON = {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", FOLDER}
IN_KUBERNETES = {"HOSTS", "POD_IP"}


def manifests(folder: Path = BASE) -> list[dict[str, Any]]:
    paths = [
        path
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]
    return [one for path in paths for one in yaml.safe_load_all(path.read_text())]


def workloads() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield each Deployment and Job with its pod and its only container."""
    for manifest in manifests():
        if manifest["kind"] in ("Deployment", "Job"):
            pod = manifest["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            yield manifest["metadata"]["name"], pod, container


def parsed(arguments: list[str]) -> Any:
    """Parse the arguments of the program as it does; an unknown one ends the test."""
    name, *rest = arguments
    command = load_command_class(str(get_commands()[name]), name)
    return command.create_parser("fleetui", name).parse_args(rest)


@pytest.mark.nightly
def test_every_setting_that_is_named_exists() -> None:
    known = {variable_name(field_name) for field_name in Variables.model_fields}
    image = {
        word.partition("=")[0]
        for name, rest in DOCKERFILE
        if name == "ENV"
        for word in rest.split()
    }
    compose = set(
        re.findall(
            r"\b[A-Z][A-Z_]{4,}\b(?=: |:-|:\?)", (DEPLOY / "compose.yaml").read_text()
        )
    )
    kubernetes = {
        env["name"] for _, _, container in workloads() for env in container["env"]
    }
    config = {
        key
        for manifest in manifests()
        if manifest["kind"] == "ConfigMap"
        for key in manifest["data"]
    }
    systemd = set(
        re.findall(
            r"^#?([A-Z_]+)=",
            (DEPLOY / "systemd" / "fleetui.env").read_text(),
            re.MULTILINE,
        )
    )
    pip = {name for name in image if name.startswith("PIP_")}

    assert image - pip - OF_PYTHON - known == set()
    assert {name for name in compose if "_" in name} - OTHERS - {
        "POSTGRES_USER",
        "POSTGRES_DB",
    } - known == set()
    assert (kubernetes | config) - IN_KUBERNETES - known == set()
    assert systemd - known == set()
    assert {
        "DATABASE_URL",
        "CELERY_BROKER_URL",
        "FLEETUI_CREDENTIAL_KEYS",
    } <= compose & kubernetes & systemd
    secrets = re.findall(
        r"\b[A-Z_]{6,}\b",
        (BASE / "settings.yaml").read_text().partition("apiVersion")[0],
    )
    referred = {
        env["valueFrom"]["secretKeyRef"]["key"]
        for _, _, container in workloads()
        for env in container["env"]
        if "secretKeyRef" in env.get("valueFrom", {})
    }
    assert referred == set(secrets)


def test_every_program_is_started_with_arguments_that_it_knows() -> None:
    compose = {
        name: one["command"]
        for name, one in COMPOSE["services"].items()
        if "build" in one
    }
    kubernetes = {
        name.removeprefix("fleetui-"): document["args"]
        for name, _, document in workloads()
    }
    systemd = {
        path.stem.removeprefix("fleetui-"): re.findall(
            r"^ExecStart=\S+/fleetui (.*)$", path.read_text(), re.MULTILINE
        )[0]
        for path in UNITS
    }
    cmd = json.loads(next(rest for name, rest in DOCKERFILE if name == "CMD"))

    assert compose.keys() == kubernetes.keys()
    assert {name.replace("prepare", "migrate") for name in systemd} == compose.keys()
    for commands in (
        compose,
        kubernetes,
        {name: text.split() for name, text in systemd.items()},
    ):
        options = {
            name: parsed([str(word) for word in words])
            for name, words in commands.items()
        }
        assert [name for name, words in commands.items() if words[0] == "prepare"] in (
            ["migrate"],
            ["prepare"],
        )
        others = {
            name: one for name, one in options.items() if commands[name][0] == "up"
        }
        assert all(other.prepared for other in others.values())
        started = sorted(part for other in others.values() for part in other.only)
        assert started == [
            "beat",
            "hubs",
            "web",
            "worker",
        ]  # all parts, and the clock once
        assert others["web"].port == int(PORT)
    assert parsed(cmd).host == "0.0.0.0"  # what a container has to listen on
    assert cmd[cmd.index("--port") + 1] == PORT


def test_image_ports_and_users_agree() -> None:
    steps = dict(DOCKERFILE)  # the last of each
    assert steps["EXPOSE"] == PORT
    assert steps["USER"] == f"{USER}:{USER}"
    assert f":{PORT}/healthz" in steps["HEALTHCHECK"]
    assert "/healthz" in PROBES
    services = COMPOSE["services"]
    ours = {name: one for name, one in services.items() if "build" in one}
    assert {one["image"] for one in ours.values()} == {f"fleetui:{__version__}"}
    assert services["web"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    for name, one in ours.items():
        assert (one["user"], one["read_only"], one["cap_drop"]) == (
            f"{USER}:{USER}",
            True,
            ["ALL"],
        ), name
        assert one.get("healthcheck", {}).get("disable", False) is (name != "web")
        assert {"DATABASE_URL", "CELERY_BROKER_URL", "FLEETUI_SECRET_KEY"} <= one[
            "environment"
        ].keys()
    assert set(services) - set(ours) == {"postgres", "redis"}
    for overlay in ("evaluation", "production"):
        (image,) = yaml.safe_load(
            (BASE.parent / "overlays" / overlay / "kustomization.yaml").read_text()
        )["images"]
        assert (image["name"], image["newTag"]) == ("fleetui", __version__)
    copied = {
        word
        for name, rest in DOCKERFILE
        if name == "COPY"
        for word in rest.split()[:-1]
    }
    kept = {
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line[:1] == "!"
    }
    assert {one for one in copied if not one.startswith(("--", "/opt"))} == kept
    assert [one for one in kept if not (ROOT / one).exists()] == []
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"][
        "build"
    ]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"]} <= kept


def test_pods_meet_the_restricted_standard_of_pod_security() -> None:
    pods = list(workloads())
    for name, pod, container in pods:
        of_pod, of_container = pod["securityContext"], container["securityContext"]
        assert of_pod["runAsNonRoot"] is True, name
        assert of_pod["runAsUser"] == int(USER)
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert of_container["allowPrivilegeEscalation"] is False
        assert of_container["readOnlyRootFilesystem"] is True
        assert of_container["capabilities"] == {"drop": ["ALL"]}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
        assert not {"privileged", "procMount"} & of_container.keys()
        assert all(volume.keys() == {"name", "emptyDir"} for volume in pod["volumes"])
        assert {mount["mountPath"] for mount in container["volumeMounts"]} == {
            "/tmp",
            "/var/lib/fleetui",
        }
        assert pod["automountServiceAccountToken"] is False
        assert {"requests", "limits"} <= container["resources"].keys()
    assert len(pods) == 4
    for overlay in ("evaluation", "production"):
        (namespace,) = yaml.safe_load_all(
            (BASE.parent / "overlays" / overlay / "namespace.yaml").read_text()
        )
        assert namespace["metadata"]["labels"] == {
            "pod-security.kubernetes.io/enforce": "restricted"
        }


def test_services_policies_and_budgets_select_what_there_is() -> None:
    found = manifests()
    labels = {
        document["spec"]["template"]["metadata"]["labels"][
            "app.kubernetes.io/component"
        ]
        for document in found
        if document["kind"] in ("Deployment", "Job")
    }
    texts = json.dumps(
        [
            document
            for document in found
            if document["kind"] not in ("Deployment", "Job")
        ]
    )
    assert set(re.findall(r'"app.kubernetes.io/component": "(\w+)"', texts)) <= labels
    service = next(document for document in found if document["kind"] == "Service")
    web = next(container for name, _, container in workloads() if name == "fleetui-web")
    assert (
        service["spec"]["ports"][0]["targetPort"] == web["ports"][0]["name"] == "http"
    )
    assert web["ports"][0]["containerPort"] == int(PORT)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path, _, query = web[probe]["httpGet"]["path"].partition("?")
        assert path in PROBES
        assert {
            word.removeprefix("exclude=") for word in query.split("&") if word
        } <= CHECKS.keys()
    beat = next(
        document for document in found if document["metadata"]["name"] == "fleetui-beat"
    )
    assert (beat["spec"]["replicas"], beat["spec"]["strategy"]) == (
        1,
        {"type": "Recreate"},
    )
    (monitor,) = yaml.safe_load_all(
        (BASE.parent / "overlays" / "production" / "service-monitor.yaml").read_text()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"]["key"] == "FLEETUI_METRICS_TOKEN"
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items()
        <= {
            "app.kubernetes.io/name": "fleetui",
            **service["metadata"]["labels"],
        }.items()
    )


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    for path in (DEPLOY / "systemd").glob("fleetui*.[st]*"):
        text = path.read_text().replace(
            "/opt/fleetui/bin/fleetui", shutil.which("true") or "/bin/true"
        )
        (tmp_path / path.name).write_text(text)
    files = [
        str(path)
        for path in tmp_path.iterdir()
        if path.suffix in (".service", ".target")
    ]
    assert len(files) == 5

    verify = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    judge = ["systemd-analyze", "security", "--offline=true", "--threshold=20", *files]
    services = [one for one in judge if not one.endswith(".target")]
    judged = subprocess.run(services, capture_output=True, text=True, check=False)

    assert (verify.returncode, verify.stderr) == (0, "")
    assert judged.returncode == 0, judged.stdout[-500:]
    for path in UNITS:
        unit = ConfigParser(strict=False, interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]  # names of systemd have capitals
        unit.read(path)
        assert unit["Service"]["User"] == "fleetui"
        assert unit["Service"]["ProtectSystem"] == "strict"
