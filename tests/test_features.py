"""The table of features in docs/contributing/layout.md is that of the code."""

from tests.features import FEATURES, SHARED, files_of_features, table
from tests.source_code import ROOT

LAYOUT = (ROOT / "docs" / "contributing" / "layout.md").read_text(encoding="utf-8")


def test_the_table_of_features_is_that_of_the_code() -> None:
    assert table() in LAYOUT, "python -m tests.features prints it"


def test_every_feature_has_files() -> None:
    files = files_of_features()

    assert [feature for feature in (*FEATURES, SHARED) if not files[feature]] == []
