"""Values of Secrets are read by one function; who calls it is listed here."""

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection, models

from fleetui.access.secret_values import plain_manifest
from fleetui.encryption import SEALED, HiddenText
from fleetui.fields import ManifestField, SealedTextField
from fleetui.sealed_rows import hide_again, seal_texts, unseal_texts
from placements.models import Draft, Resource
from placements.services.resources.operations import apply_resources
from tests.database import database_dump
from tests.rows import NOW, namespace
from tests.source_code import PRODUCT

READ_BY_PERSONS = {
    "fleetui/access/secret_values.py manifest_for": "holders of `view_secrets`, and who runs commands on the server",
    "placements/services/editor/validation.py text_for": "the owner of a draft, holders of `view_secrets`",
    "placements/web/apply.py _starting_text": "the edit form, for those who may change the Secret",
}
"""Those who read a Secret this way have a line in the access log."""
ACTING = {
    "placements/services/dry_runs.py add_calls": "rendered for the clusters",
    "placements/services/overrides/queries.py frozen_of": "patches of manifests for clusters",
    "placements/services/resources/queries.py plain_objects": "snapshots",
    "placements/services/rollouts/worker.py read": "rollouts",
}
COMPARING = {
    "placements/api/base.py patched": "a merge patch keeps the values",
    "placements/services/apply.py unchanged": "the same again changes nothing",
    "placements/services/editor/operations.py confirm_draft": "a draft is saved",
    "placements/services/editor/operations.py write_draft": "the same text again",
    "placements/services/editor/operations.py summaries_of": "the number of changes in a draft",
    "placements/services/history/compare.py _contents": "what changed, without values",
    "placements/services/history/compare.py changes_by_unpinning": "what changed, without values",
    "placements/services/overrides/operations.py save_override": "the same again changes nothing",
    "placements/services/resources/operations.py _apply": "the same again changes nothing",
    "placements/services/resources/operations.py apply_resources": "which values an event marks as changed",
    "placements/services/resources/operations.py unchanged_resources": "the same again changes nothing",
    "placements/services/teams.py check_rollback": "which objects a rollback changes",
    "placements/services/results.py save_row": "the same again, and which values an event marks as changed",
}
"""They show no values."""
WITHOUT_VALUES = {
    "fleetui/audit.py _row",
    "fleetui/sealed_rows.py _hidden_again",
    "placements/hubs/projection/overrides.py set_columns",
    "placements/hubs/projection/overrides.py columns_of",
}
"""Who stores manifests without their values for good."""


def callers_of(name: str) -> set[str]:
    """Return module and function of every place that names a function, where it is not imported."""
    return {
        f"{module.name} {user}"
        for module in PRODUCT
        if name in module.text
        for user in _users(module.tree, name, "")
    }


def _users(node: ast.AST, name: str, function: str) -> Iterator[str]:
    if name in (getattr(node, "id", ""), getattr(node, "attr", "")):
        yield function
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    elif isinstance(node, ast.Lambda):
        function = "<lambda>"
    for inner in ast.iter_child_nodes(node):
        yield from _users(inner, name, function)


def test_values_are_read_by_these_only() -> None:
    assert callers_of("plain_manifest") == {*READ_BY_PERSONS, *ACTING, *COMPARING}
    assert callers_of("manifest_for") == {
        "placements/api/base.py manifest_response",
        "placements/api/placements.py resource_snapshot",
    }
    assert callers_of("decrypted_manifest") == {
        "fleetui/access/secret_values.py plain_manifest",
        "fleetui/encryption.py decrypted_manifest",
    }
    assert callers_of("decrypted") == {
        *(
            f"fleetui/encryption.py {one}"
            for one in ("decrypted_manifest", "_sealed_again")
        ),
        *(f"fleetui/sealed_rows.py {one}" for one in ("_token", "unseal_texts")),
    }
    assert callers_of("without_values") == WITHOUT_VALUES


def test_a_caller_is_found() -> None:
    tree = ast.parse(
        "class A:\n    def b(self):\n        return map(plain_manifest, self.rows)"
    )

    assert list(_users(tree, "plain_manifest", "")) == ["b"]


def test_no_other_column_holds_manifests_of_resources() -> None:
    found = {
        f"{model.__name__}.{column.name}"
        for model in apps.get_models()
        for column in model._meta.concrete_fields
        if isinstance(column, ManifestField | SealedTextField)
    }

    assert found == {
        *(
            "Event.before",
            "Event.after",
            "Resource.content",
            "ResourceSnapshotPart.manifests",
        ),
        *(
            "Override.document",
            "OverrideSnapshot.document",
            "Draft.text",
        ),
    }


@pytest.mark.django_db
def test_the_migration_hides_and_encrypts_what_the_release_before_stored() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "shop"},
    }
    apply_resources(
        [namespace("shop"), {**secret, "Data": {"a": "planted"}}], by=None, now=NOW
    )
    text = '"(hidden)"'
    with (
        connection.cursor() as cursor
    ):  # it hid known fields only, and encrypted no text
        cursor.execute(
            "UPDATE placements_resource SET content = replace(content, %s, %s)",
            [text, '"planted"'],
        )
    owner = User.objects.create(username="ana")
    draft = Draft.objects.create(owner=owner, created_at=NOW, updated_at=NOW)
    Draft.objects.filter(pk=draft.pk).update(text=_raw("planted"))
    assert database_dump().count("planted") == 2

    hide_again(apps)
    for _ in range(2):
        seal_texts("placements_draft", "text")

    assert "planted" not in database_dump()
    assert plain_manifest(Resource.objects.get(kind="Secret").content)["Data"] == {
        "a": "planted"
    }
    read = Draft.objects.get(pk=draft.pk)
    assert (type(read.text), plain_manifest(read.text)) == (HiddenText, "planted")
    unseal_texts("placements_draft", "text")
    assert database_dump().count("planted") == 1
    assert plain_manifest(Draft.objects.get(pk=draft.pk).text) == "planted"
    assert SEALED not in str(Draft.objects.all())


def _raw(text: str) -> Any:
    return models.expressions.RawSQL("%s", [text])
