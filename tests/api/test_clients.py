"""Clients that are generated from the schema compile, and refuse a misspelt field."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from placements.api.manifest_schema import component
from tests.api.schema import example_problems, generated_schema
from tests.api.test_schema import BODIES

_WORDS = ("numberOfClusters", "numberOfCluster")
_TYPESCRIPT = """
import type { components, paths } from "./schema";
type Schemas = components["schemas"];
export const web: Schemas["ClusterResourcePlacementManifest"] = {
    apiVersion: "placement.kubernetes-fleet.io/v1",
    kind: "ClusterResourcePlacement",
    metadata: { name: "web" },
    spec: {
        resourceSelectors: [{ group: "", version: "v1", kind: "Namespace", name: "web" }],
        policy: { placementType: "PickN", numberOfClusters: 2 },
    },
};
type List = paths["/api/v1/placements"]["get"]["responses"]["200"]["content"]["application/json"];
export const names = (list: List): string[] => list.items.map((one) => one.name);
export const health = (list: List): Schemas["Health"]["level"][] => list.items.map((one) => one.health.level);
"""


def test_a_misspelt_field_of_a_manifest_is_no_valid_request() -> None:
    body = BODIES["PUT /api/v1/placements/{name}"]
    content = {"schema": component("PlacementManifest"), "example": body}
    misspelt = json.loads(json.dumps(body).replace(*_WORDS))

    assert misspelt != body
    assert example_problems(content) == []
    assert example_problems({**content, "example": misspelt}) != []


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(generated_schema()))
    return path


def _run(
    *command: Any, cwd: Path, seconds: int = 300
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.nightly
def test_a_typescript_client_compiles_and_refuses_a_misspelt_field(
    schema_file: Path,
) -> None:
    folder = schema_file.parent
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    packages = ("openapi-typescript@7", "typescript@5")
    installed = _run(
        "npm",
        "install",
        "--no-audit",
        "--no-fund",
        "--prefix",
        folder,
        *packages,
        cwd=folder,
    )
    if installed.returncode:
        pytest.skip(
            f"npm cannot install {', '.join(packages)}: {installed.stderr[-300:]}"
        )
    tools = folder / "node_modules" / ".bin"
    made = _run(
        tools / "openapi-typescript",
        schema_file,
        "-o",
        folder / "schema.d.ts",
        cwd=folder,
    )
    (folder / "good.ts").write_text(_TYPESCRIPT)
    (folder / "bad.ts").write_text(_TYPESCRIPT.replace(*_WORDS))

    good = _run(tools / "tsc", "--noEmit", "--strict", "good.ts", cwd=folder)
    bad = _run(tools / "tsc", "--noEmit", "--strict", "bad.ts", cwd=folder)

    assert made.returncode == 0, made.stderr
    assert good.returncode == 0, good.stdout
    assert bad.returncode != 0
    assert "'numberOfCluster' does not exist" in bad.stdout


@pytest.mark.nightly
def test_a_python_client_compiles_and_refuses_a_misspelt_field(
    schema_file: Path,
) -> None:
    folder = schema_file.parent
    # The generator knows JSON only; the same bodies are accepted as YAML.
    (folder / "config.yaml").write_text(
        "content_type_overrides:\n"
        "  application/yaml: application/json\n"
        "  application/merge-patch+json: application/json\n"
        "  text/csv: text/plain\n"
        "post_hooks: []\n"
    )
    generator = Path(sys.executable).with_name("openapi-python-client")
    options = (
        "--path",
        schema_file,
        "--config",
        "config.yaml",
        "--meta",
        "none",
        "--output-path",
        "client",
    )
    made = _run(generator, "generate", *options, cwd=folder)
    use = "from client.models import PlacementPolicy\npolicy = PlacementPolicy(number_of_clusters=2)\n"
    (folder / "good.py").write_text(use + "print(policy.to_dict())\n")
    (folder / "bad.py").write_text(
        use.replace("number_of_clusters", "number_of_cluster")
    )
    # What is checked is who uses the client: in some of its modules a field hides the class of the same name.
    mypy = (
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--no-error-summary",
        "--follow-imports=silent",
    )

    compiled = _run(sys.executable, "-m", "compileall", "-q", "client", cwd=folder)
    called = _run(sys.executable, "good.py", cwd=folder)
    good, bad = (_run(*mypy, f"{name}.py", cwd=folder) for name in ("good", "bad"))

    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in made.stdout + made.stderr
    assert compiled.returncode == 0, compiled.stdout
    assert called.stdout.strip() == "{'numberOfClusters': 2}", called.stderr
    assert good.returncode == 0, good.stdout
    assert 'Unexpected keyword argument "number_of_cluster"' in bad.stdout
