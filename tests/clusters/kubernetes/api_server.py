"""A local API server that keeps what is applied as it is sent, and answers dry runs."""

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from clusters.drivers.kubernetes.inventory import SYSTEM_NAMESPACE_PATH
from tests.clusters.kubernetes.servers import (
    INVENTORIES,
    Member,
    Request,
    answer,
    status_body,
)

_KINDS = {
    "/api/v1": [
        ("namespaces", "Namespace", False),
        ("configmaps", "ConfigMap", True),
        ("secrets", "Secret", True),
    ],
    "/apis/apps/v1": [("deployments", "Deployment", True)],
    "/apis/batch/v1": [("jobs", "Job", True)],
}


@dataclass
class ApiServer(Member):
    """Objects by path; `refusals` and `statuses` by the last part of the path."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def _answer(self, request: Request) -> bytes:
        url = urlsplit(request.path)
        if url.path in _KINDS:
            verbs = ["get", "create", "patch", "delete"]
            resources = [
                {
                    "name": plural,
                    "kind": kind,
                    "namespaced": is_namespaced,
                    "verbs": verbs,
                }
                for plural, kind, is_namespaced in _KINDS[url.path]
            ]
            return answer(200, {"resources": resources})
        name = url.path.rpartition("/")[2]
        if request.method == "POST" and url.path.endswith("/configmaps"):
            name = json.loads(request.body)["metadata"]["name"]
            return self._patched(
                f"{url.path}/{name}", name, request, is_dry=False, status=201
            )
        if request.method == "PATCH":
            return self._patched(
                url.path,
                name,
                request,
                is_dry=parse_qs(url.query).get("dryRun") == ["All"],
            )
        is_own = url.path in (SYSTEM_NAMESPACE_PATH, INVENTORIES)
        if (
            request.method == "GET"
            and url.path.startswith(("/api/v1/", "/apis/"))
            and not is_own
        ):
            if url.path in self.objects:
                return answer(200, self.objects[url.path])
            return answer(
                404, {**status_body(404, "NotFound"), "details": {"name": name}}
            )
        return super()._answer(request)

    def _patched(
        self, path: str, name: str, request: Request, *, is_dry: bool, status: int = 200
    ) -> bytes:
        if name in self.refusals:
            code, message = self.refusals[name]
            return answer(
                code,
                {**status_body(code, "Invalid", message), "details": {"name": name}},
            )
        body = json.loads(request.body)
        version = str(len(self.written) + 1)
        kept = {"uid": f"uid-{name}", "resourceVersion": version}
        found = {**body, "metadata": {**body["metadata"], **kept}}
        if not is_dry:
            self.written.append(path)
            self.objects[path] = {**found, "status": self.statuses.get(name, {})}
        return answer(status, found)
