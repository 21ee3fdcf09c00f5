"""Which changes on the hub matter to a placement; that none is missed is a property, tested apart."""

from typing import Any

import pytest

from fleetui.apimachinery.secrets import HubObject
from placements.engine.selection import concerns
from tests.engine.selection.test_selection import (
    ALONE,
    CLUSTER_ROLE,
    DEPLOYMENT,
    WIDGET,
    labelled,
    selecting,
)
from tests.hub_objects import hub_object

IN_SHOP = hub_object("Deployment", "web", "shop")
IN_BANK = hub_object("Deployment", "web", "bank", labels={"app": "web"})
BANK = hub_object("Namespace", "bank", labels={"team": "money"})
IN_THE_HUB = hub_object("ConfigMap", "a", "kube-system")
READER = hub_object("ClusterRole", "reader")


@pytest.mark.parametrize(
    ("selectors", "changed", "matters"),
    [
        ([{"name": "shop"}], IN_SHOP, True),
        ([{"name": "shop"}], IN_BANK, False),
        ([{"name": "shop"}], BANK, False),
        ([{"name": "bank"}], BANK, True),
        ([{"name": "shop"}, {**CLUSTER_ROLE, "name": "reader"}], READER, True),
        ([{"name": "shop"}, {**CLUSTER_ROLE, "name": "writer"}], READER, False),
        ([{"name": "bank", "selectionScope": "NamespaceOnly"}], IN_BANK, False),
        ([labelled(team="money")], BANK, True),
        ([labelled(team="web")], BANK, False),
        ([labelled(team="web")], IN_BANK, True),
        ([{}], IN_THE_HUB, False),
        ([ALONE, DEPLOYMENT], IN_BANK, True),
        ([ALONE, DEPLOYMENT], IN_SHOP, False),
        ([ALONE, {**DEPLOYMENT, **labelled(app="load")}], IN_BANK, False),
        ([ALONE], IN_BANK, False),
        ([ALONE], BANK, True),
        (
            [ALONE, {"kind": "Endpoints", "name": "web"}],
            hub_object("Service", "web", "bank"),
            True,
        ),
        ([WIDGET], hub_object("Widget", "w", "shop"), True),
        ([{**WIDGET, "name": "other"}], hub_object("Widget", "w", "shop"), True),
        ([WIDGET], READER, False),
        (
            [CLUSTER_ROLE],
            hub_object("ClusterRole", "a", version="rbac.authorization.k8s.io/v1beta1"),
            True,
        ),
    ],
)
def test_matters(
    selectors: list[dict[str, Any]], changed: HubObject, matters: bool
) -> None:
    assert concerns(selecting(*selectors), [changed]) is matters


def test_an_object_that_moves_away_matters_by_what_it_was() -> None:
    before = hub_object("ClusterRole", "reader", labels={"team": "web"})
    selectors = selecting({**CLUSTER_ROLE, **labelled(team="web")})

    assert (concerns(selectors, [READER]), concerns(selectors, [before, READER])) == (
        False,
        True,
    )


def test_nothing_matters_when_nothing_changed() -> None:
    assert not concerns(selecting({}), [])
