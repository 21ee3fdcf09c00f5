"""A fake hub that may be written to, with a mirror that the test writes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.cache import caches
from django.test import override_settings

from clusters.models import Hub, HubWrite
from fleetui.hub_scope import in_hub
from placements.hubs.write_requests import KINDS
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.operations import (
    AppliedWrite,
    WritePreview,
    apply_write,
    preview_write,
)
from placements.hubs.writing.sending import HubWriter, open_writer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import TOKEN, FakeHub, find, serve_hub
from tests.hubs.fake_writes import leaves, managed
from tests.hubs.hub_documents import binding, member, placement
from tests.hubs.projecting import ProjectedHub
from tests.hubs.watching import set_token
from tests.rows import person


@dataclass
class WritableHub:
    """The hub `prod-eu` in mode `operate`; `web` is a placement that kubectl made."""

    fake: FakeHub
    server: LocalServer
    projected: ProjectedHub

    @property
    def hub(self) -> Hub:
        return Hub.objects.select_related("credential").get(pk=self.projected.hub.pk)

    def change(self, **columns: Any) -> None:
        Hub.objects.filter(pk=self.projected.hub.pk).update(**columns)

    def put(
        self, kind: str, content: Mapping[str, Any], *, manager: str = "kubectl"
    ) -> dict[str, Any]:
        """Store an object of another manager on the hub and in the mirror."""
        fields = managed(manager, "Update", leaves(content))
        metadata = {**content["metadata"], "managedFields": [fields]}
        stored = self.fake.put(find_plural(kind), {**content, "metadata": metadata})
        self.projected.put(kind, stored)
        return stored

    @contextmanager
    def writer(
        self, user: str = "ana", role: str = "operator", **options: Any
    ) -> Iterator[HubWriter]:
        with open_writer(self.hub, person=user, role=role, **options) as writer:
            yield writer

    def preview(
        self, action: str, fields: Mapping[str, Any], **options: Any
    ) -> WritePreview:
        by = options.pop("by", None) or operator()
        return preview_write(
            self.hub, ACTIONS[action], fields, by=by, now=datetime.now(UTC), **options
        )

    def apply(
        self, action: str, fields: Mapping[str, Any], **options: Any
    ) -> AppliedWrite | None:
        by = options.pop("by", None) or operator()
        return apply_write(
            self.hub, ACTIONS[action], fields, by=by, now=datetime.now(UTC), **options
        )

    def writes(self) -> list[HubWrite]:
        with in_hub(self.hub.pk):
            return list(HubWrite.objects.order_by("pk"))

    def sent(self, *methods: str) -> list[dict[str, str]]:
        """Return the queries of the writes that reached the hub, without dry runs."""
        return [
            dict(seen.query)
            for seen in self.fake.seen
            if seen.verb in (methods or ("post", "patch", "delete"))
            and "dryRun" not in seen.query
            and not seen.plural.endswith(("reviews", "accessreviews"))
        ]


def find_plural(kind: str) -> str:
    return next(
        one.plural
        for one in (KINDS.get(kind), *_others())
        if one is not None and one.kind == kind
    )


def _others() -> list[Any]:
    return [find("clusterresourcebindings")]


def operator(name: str = "ana") -> User:
    found = User.objects.filter(username=name).first()
    return found or person(name, "operator")


@contextmanager
def writable_hub(**columns: Any) -> Iterator[WritableHub]:
    """Serve a hub with two clusters and a placement."""
    caches["process"].clear()
    with (
        override_settings(MEMBER_LOOPBACK=True),
        serve_hub(FakeHub()) as (fake, server),
    ):
        connection = {"server": server.url, "ca": authority().pem}
        values = {"mode": "operate", "connection": connection, **columns}
        projected = ProjectedHub("prod-eu", **values)
        set_token(projected.hub, TOKEN)
        for kind in KINDS:
            projected._stream(kind)
        hub = WritableHub(fake, server, projected)
        hub.put("MemberCluster", member("east", region="eu"))
        hub.put("MemberCluster", member("west", region="eu"))
        web = placement("web")
        web["spec"]["resourceSelectors"][0]["selectionScope"] = "NamespaceWithResources"
        web["spec"]["strategy"] = {"type": "RollingUpdate"}
        hub.put("ClusterResourcePlacement", web)
        for cluster in ("east", "west"):
            hub.put("ClusterResourceBinding", binding("web", cluster, state="Bound"))
        projected.project()
        yield hub
