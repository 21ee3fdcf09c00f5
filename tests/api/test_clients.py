"""Clients that are generated from the schema compile, and refuse a misspelt field."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pytest_django.live_server_helper import LiveServer

from placements.api.manifest_schema import component
from tests.api.schema import example_problems, generated_schema
from tests.api.test_schema import BODIES
from tests.rows import all_joined, api_token, decided, person, pick_n_spec

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

_CALLS_TS = """
import createClient from "openapi-fetch";
import type { paths } from "./schema";
const [url, token, name] = process.argv.slice(2) as [string, string, string];
const { GET, POST, DELETE } = createClient<paths>({
    baseUrl: url, headers: { Authorization: `Token ${token}` },
});
const path = { name };
const body = { apiVersion: "v1", kind: "Namespace", metadata: { name: "shop" } };
const dry = { params: { query: { dryRun: "All" as const } }, body };
const decisions = await GET("/api/v1/placements/{name}/decisions", { params: { path } });
const decision = decisions.data!.items[0]!.id;
const answers = [
    await GET("/api/v1/placements"),
    await GET("/api/v1/clusters"),
    await GET("/api/v1/placements/{name}", { params: { path } }),
    await GET("/api/v1/placements/{name}", { params: { path: { name: "missing" } } }),
    await POST("/api/v1/apply", dry),
    await POST("/api/v1/apply", dry),
    await POST("/api/v1/placements/{name}/pause", { params: { path } }),
    await POST("/api/v1/placements/{name}/resume", { params: { path } }),
    await POST("/api/v1/clusters/{name}/cordon", { params: { path: { name: "a" } } }),
    await GET("/api/v1/decisions/{decision}/clusters/{name}/advice", {
        params: { path: { decision, name: "b" } },
    }),
    await GET("/api/v1/clusters/{name}/drain", { params: { path: { name: "b" } } }),
    await DELETE("/api/v1/placements/{name}", { params: { path } }),
];
console.log(JSON.stringify(answers.map((one) => one.response.status)));
"""
_CALLS_PY = """
import json, sys
from client import AuthenticatedClient
from client.api.apply import apply
from client.api.clusters import cordon_cluster, get_drain, list_clusters
from client.api.decisions import get_cluster_advice
from client.api.placements import (
    delete_placement, get_placement, list_placement_decisions, list_placements, pause_placement, resume_placement,
)
from client.models import ApplyDryRun, ResourceManifest
url, token, name = sys.argv[1:]
console = AuthenticatedClient(base_url=url, token=token, prefix="Token")
body = ResourceManifest.from_dict({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
decision = list_placement_decisions.sync(name, client=console).items[0].id
dry = {"client": console, "body": body, "dry_run": ApplyDryRun.ALL}
answers = [
    list_placements.sync_detailed(client=console),
    list_clusters.sync_detailed(client=console),
    get_placement.sync_detailed(name, client=console),
    get_placement.sync_detailed("missing", client=console),
    apply.sync_detailed(**dry),
    apply.sync_detailed(**dry),
    pause_placement.sync_detailed(name, client=console),
    resume_placement.sync_detailed(name, client=console),
    cordon_cluster.sync_detailed("a", client=console),
    get_cluster_advice.sync_detailed(decision, "b", client=console),
    get_drain.sync_detailed("b", client=console),
    delete_placement.sync_detailed(name, client=console),
]
print(json.dumps([one.status_code.value for one in answers]))
"""
STATUSES = [200, 200, 200, 404, 200, 200, 200, 200, 200, 200, 200, 204]
"""Of the calls that `test_command_calls.py` makes by the command, in its order."""


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


def generate_typescript_client(
    schema_file: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Write `schema.d.ts` beside the schema; skip where npm cannot install what it needs."""
    folder = schema_file.parent
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    packages = ("openapi-typescript@7", "typescript@5", *more)
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
    generator = folder / "node_modules" / ".bin" / "openapi-typescript"
    return _run(generator, schema_file, "-o", folder / "schema.d.ts", cwd=folder)


def generate_python_client(schema_file: Path) -> subprocess.CompletedProcess[str]:
    """Write the package `client` beside the schema."""
    folder = schema_file.parent
    # The generator knows JSON and files only; the same bodies are accepted as YAML.
    (folder / "config.yaml").write_text(
        "content_type_overrides:\n"
        "  application/yaml: application/json\n"
        "  application/merge-patch+json: application/json\n"
        "  text/csv: application/octet-stream\n"
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
    return _run(generator, "generate", *options, cwd=folder)


@pytest.mark.nightly
def test_a_typescript_client_compiles_and_refuses_a_misspelt_field(
    schema_file: Path,
) -> None:
    folder = schema_file.parent
    made = generate_typescript_client(schema_file)
    tools = folder / "node_modules" / ".bin"
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
    made = generate_python_client(schema_file)
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


@pytest.fixture
def token() -> str:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    return api_token(person("ana", "operator"))


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_a_python_client_makes_the_twelve_calls(
    schema_file: Path, live_server: LiveServer, token: str
) -> None:
    folder = schema_file.parent
    generate_python_client(schema_file)
    (folder / "calls.py").write_text(_CALLS_PY)

    called = _run(sys.executable, "calls.py", live_server.url, token, "web", cwd=folder)

    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout) == STATUSES


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_a_typescript_client_makes_the_twelve_calls(
    schema_file: Path, live_server: LiveServer, token: str
) -> None:
    folder = schema_file.parent
    (folder / "package.json").write_text('{"type": "module"}')
    generate_typescript_client(schema_file, "openapi-fetch@0", "@types/node@20")
    (folder / "calls.ts").write_text(_CALLS_TS)
    options = ("--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext")
    tsc = folder / "node_modules" / ".bin" / "tsc"
    compiled = _run(
        tsc, *options, "--moduleResolution", "bundler", "calls.ts", cwd=folder
    )

    called = _run("node", "calls.js", live_server.url, token, "web", cwd=folder)

    assert compiled.returncode == 0, compiled.stdout
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout) == STATUSES
