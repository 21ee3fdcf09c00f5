"""The form over a manifest: sent back as it was shown, it changes nothing, whatever the manifest holds."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.services.editor.edits import add_row, apply_form, remove_row
from placements.services.editor.form import PlacementForm
from placements.services.editor.validation import PlacementDraft
from tests.documents import placement

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *(ROOT / "tests" / "data" / "documents").glob("*.yaml"),
    *(ROOT / "docs" / "examples").glob("*.yaml"),
]


def _placements() -> list[str]:
    texts = [
        text
        for file in FILES
        for text in file.read_text(encoding="utf-8").split("\n---\n")
    ]
    return [text for text in texts if PlacementDraft.parse(text).form is not None]


MANIFESTS = _placements()


def _form(text: str) -> PlacementForm:
    form = PlacementDraft.parse(text).form
    assert form is not None
    return form


def _shown(form: PlacementForm) -> dict[str, str]:
    return {field.name: field.value for field in form.fields}


def _data(text: str) -> Any:
    return load_documents(text)[0].data


def test_there_are_manifests_to_try() -> None:
    assert len(MANIFESTS) >= 5


@pytest.mark.parametrize("text", MANIFESTS)
def test_a_real_manifest_comes_back_as_it_was(text: str) -> None:
    form = _form(text)

    assert (
        apply_form(PlacementDraft.parse(text), _shown(form), shape=form.shape) == text
    )


@pytest.mark.nightly
@pytest.mark.parametrize("text", MANIFESTS)
def test_every_row_that_is_added_can_be_taken_out_again(text: str) -> None:
    for group in _form(text).all_groups:
        if not group.can_add:
            continue
        more = add_row(PlacementDraft.parse(text), group.name)
        rows = [
            row
            for field_group in _form(more).all_groups
            if field_group.name == group.name
            for row in field_group.rows
        ]
        back = _data(remove_row(PlacementDraft.parse(more), rows[-1].name))
        assert back["metadata"] == _data(text)["metadata"]
        assert {**back["spec"], "policy": back["spec"].get("policy") or None} == {
            "policy": None,
            **_data(text)["spec"],
        }


def test_an_empty_choice_where_nothing_is_written_changes_nothing() -> None:
    text = next(text for text in MANIFESTS if "strategy:" not in text)

    assert (
        apply_form(
            PlacementDraft.parse(text),
            {"spec.strategy.type": ""},
            shape=_form(text).shape,
        )
        == text
    )


@pytest.mark.nightly
@pytest.mark.parametrize("text", MANIFESTS)
def test_changing_any_field_changes_that_place_alone(text: str) -> None:
    form = _form(text)
    for field in form.fields:
        if field.type in ("key", "choice"):
            continue
        typed = "7" if field.value != "7" else "8"
        done = _form(
            apply_form(
                PlacementDraft.parse(text),
                {**_shown(form), field.name: typed},
                shape=form.shape,
            )
        )
        assert {
            name: value
            for name, value in _shown(done).items()
            if value != _shown(form).get(name)
        } == {field.name: typed}
        assert done.unshown == form.unshown


_TEXTS = some.text(max_size=12) | some.sampled_from(
    ["yes", "007", "1e3", "- a", "a: b", "# no", "~", "'", "é"]
)
_SCALARS = some.none() | some.booleans() | some.integers(-9, 99) | _TEXTS
_ODD = some.recursive(
    _SCALARS,
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(_TEXTS, inner, max_size=3)
    ),
    max_leaves=6,
)
_LABEL_ROWS = some.fixed_dictionaries(
    {"key": _SCALARS, "operator": _SCALARS},
    optional={"values": some.lists(_SCALARS, max_size=3) | _ODD},
)
_SELECTORS = some.fixed_dictionaries(
    {},
    optional={
        "matchLabels": some.dictionaries(_TEXTS, _SCALARS, max_size=3) | _ODD,
        "matchExpressions": some.lists(_LABEL_ROWS, max_size=2) | _ODD,
        "unknown": _ODD,
    },
)
_TERMS = some.fixed_dictionaries(
    {}, optional={"labelSelector": _SELECTORS, "propertySorter": _ODD}
)
_POLICIES = some.fixed_dictionaries(
    {},
    optional={
        "placementType": _SCALARS,
        "numberOfClusters": _ODD,
        "clusterNames": _ODD,
        "topologySpreadConstraints": some.lists(
            some.fixed_dictionaries(
                {}, optional={"topologyKey": _SCALARS, "maxSkew": _ODD}
            ),
            max_size=3,
        ),
        "affinity": some.fixed_dictionaries(
            {
                "clusterAffinity": some.fixed_dictionaries(
                    {},
                    optional={
                        "preferredDuringSchedulingIgnoredDuringExecution": some.lists(
                            some.fixed_dictionaries(
                                {"weight": _SCALARS, "preference": _TERMS}
                            ),
                            max_size=2,
                        ),
                        "requiredDuringSchedulingIgnoredDuringExecution": some.fixed_dictionaries(
                            {"clusterSelectorTerms": some.lists(_TERMS, max_size=2)}
                        ),
                    },
                )
            }
        ),
        "tolerations": _ODD,
    },
)


@given(_POLICIES)
def test_any_policy_comes_back_as_it_was(policy: dict[str, Any]) -> None:
    text = dump_yaml(placement(policy=policy))
    draft = PlacementDraft.parse(text)
    if (
        draft.form is None
    ):  # a text that no parser reads, such as a key that is far too long
        return

    assert (
        apply_form(
            PlacementDraft.parse(text), _shown(draft.form), shape=draft.form.shape
        )
        == text
    )


@pytest.mark.nightly
@given(_POLICIES)
def test_whatever_no_field_shows_is_listed(policy: dict[str, Any]) -> None:
    form = _form(dump_yaml(placement(policy=policy)))
    field_keys = {field.keys for field in form.fields}
    paths = [keys for keys in field_keys if keys[:2] == ("spec", "policy")]

    hidden = [key for key in policy if not any(keys[2] == key for keys in paths)]
    listed = [path for path in form.unshown if path.startswith("spec.policy.")]
    assert all(
        any(path.startswith(f"spec.policy.{key}") for path in listed)
        for key in hidden
        if policy[key] not in ([], {}) and not _is_hollow(policy[key])
    )


def _is_hollow(value: Any) -> bool:
    """Return whether there is nothing in it but empty lists and objects that have their place in the form."""
    if isinstance(value, dict):
        return all(map(_is_hollow, value.values()))
    return isinstance(value, list) and all(map(_is_hollow, value))
