"""Values of Secrets are encrypted in the database, wherever a manifest is stored; the console has them."""

from typing import Any

import pytest
from django.core.management.base import CommandError
from django.test import override_settings

from fleetui.access.secret_values import plain_manifest
from fleetui.encryption import SEALED, KeysUnreadable, hidden, sealed
from fleetui.env import new_encryption_key
from placements.models import Resource
from placements.services.overrides.operations import save_override
from placements.services.resources.operations import apply_resources
from tests.commands import call_command
from tests.database import database_dump
from tests.rows import NOW, config_map, namespace, spec
from tests.services.rollouts.overrides import for_resource, rule
from tests.services.rollouts.world import World, handed_to

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
PLANTED = (
    "planted-value",
    "cGxhbnRlZC12YWx1ZQ",
    "planted-patch",
    "planted-copy",
    "planted-wrapped",
)
COPY = "kubectl.kubernetes.io/last-applied-configuration"


def secret(name: str, **data: Any) -> dict[str, Any]:
    annotations = {COPY: '{"data": {"password": "planted-copy"}}'}
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data}


def planted() -> World:
    """Plant values wherever a manifest may have them, in two versions, and roll out to two clusters."""
    world = World(2)
    first = secret(
        "login", data={"first": "MQ=="}, stringData={"password": "planted-value"}
    )
    envelope = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ResourceEnvelope",
        "metadata": {"name": "bundle", "namespace": "shop"},
        "data": {"secret.yaml": secret("inner", stringData={"key": "planted-wrapped"})},
    }
    world.apply(first, envelope)
    patch = rule({"op": "add", "path": "/data/other", "value": "planted-patch"})
    login = {"group": "", "version": "v1", "kind": "Secret", "name": "login"}
    save_override(for_resource("harden", patch, of=login), by=None, now=NOW)
    world.place("web", spec())
    world.run(until=world.is_settled)
    world.apply(secret("login", data={"password": "cGxhbnRlZC12YWx1ZQ=="}))
    world.work()
    world.run(until=world.is_settled)
    return world


@pytest.mark.servers_only
def test_no_row_of_any_table_has_a_value_and_clusters_get_them() -> None:
    planted()

    dump = database_dump()

    assert [value for value in PLANTED if value in dump] == []
    assert dump.count(SEALED) > 5
    assert handed_to("c000")["Secret"]["stringData"] == {"key": "planted-wrapped"}
    stored = Resource.objects.get(kind="Secret")
    assert (
        plain_manifest(stored.content)["metadata"]["annotations"][COPY].count(
            "planted-copy"
        )
        == 1
    )


def test_a_lost_key_is_named_and_reads_nothing() -> None:
    old, new = new_encryption_key(), new_encryption_key()
    with override_settings(CREDENTIAL_KEYS=(old,)):
        apply_resources(
            [namespace("shop"), secret("login", data={"a": "Yw=="})], by=None, now=NOW
        )
    with override_settings(CREDENTIAL_KEYS=(new, old)):
        read = Resource.objects.get(kind="Secret")
        assert read.content["data"] == {"a": "(hidden)"}
        assert plain_manifest(read.content)["data"] == {"a": "Yw=="}

    with override_settings(CREDENTIAL_KEYS=(new,)):
        with pytest.raises(KeysUnreadable, match="Secret login"):
            plain_manifest(Resource.objects.get(kind="Secret").content)
        with pytest.raises(CommandError, match=r"Resource \d"):
            call_command("credentials", "check")


def test_all_rows_follow_a_rotation() -> None:
    old, new = new_encryption_key(), new_encryption_key()
    with override_settings(CREDENTIAL_KEYS=(old,)):
        planted()
    with override_settings(CREDENTIAL_KEYS=(new, old)):
        call_command("credentials", "rotate")
    with override_settings(CREDENTIAL_KEYS=(new,)):
        call_command("credentials", "check")
        assert handed_to("c001")["Secret"]["stringData"] == {"key": "planted-wrapped"}


def test_only_manifests_with_secret_values_are_sealed_and_a_forged_seal_is_content() -> (
    None
):
    plain = config_map("plain")
    assert sealed(plain) is plain
    forged = {**plain, SEALED: "gAAAAA-not-a-token"}
    assert plain_manifest(hidden(sealed(forged))) == forged
    both = [plain, secret("login", data={"b": "1", "a": "2"})]
    assert list(plain_manifest(hidden(sealed(both)))[1]["data"]) == ["b", "a"]
