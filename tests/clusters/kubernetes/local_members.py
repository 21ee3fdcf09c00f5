"""Fixtures of tests that connect a cluster: an API server of the test, and drivers that may reach it."""

import json
from collections.abc import Iterator

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.kubernetes_drivers import DriverCache
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, Member, serve
from tests.clusters.kubernetes.test_kubeconfig import encode

TOKEN = "marker-token"


@pytest.fixture
def local_drivers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow connections to this machine, and close the drivers of the test at its end."""
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    with override_settings(MEMBER_LOOPBACK=True):
        yield
    kubernetes_drivers.drivers.clear()


@pytest.fixture
def member() -> Member:
    """Return what the API server answers; a test changes it."""
    return Member()


@pytest.fixture
def server(member: Member) -> Iterator[LocalServer]:
    """Serve the API of the member cluster."""
    with serve(member) as found:
        yield found


def kubeconfig(server: LocalServer, token: str = TOKEN) -> str:
    """Return a kubeconfig for the API server of a test."""
    return json.dumps(
        {
            "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {
                    "name": "c",
                    "cluster": {
                        "server": server.url,
                        "certificate-authority-data": encode(authority().pem),
                    },
                }
            ],
            "users": [{"name": "u", "user": {"token": token}}],
        }
    )
