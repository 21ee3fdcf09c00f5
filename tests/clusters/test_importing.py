"""Files of clusters: three formats, one entry point, every fault with its line."""

import csv
import io
import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.importing import MemberRead, read_members
from clusters.manifest import parse_member
from fleetui.apimachinery.errors import InvalidManifest, split_path
from fleetui.apimachinery.yaml import dump_yaml
from placements.services.demo.load import demo_of
from tests.documents import CODES, OURS, Document, member
from tests.services.test_demo_fleets import NOW

MEMBERS = (OURS / "members.yaml").read_bytes()
BRAVELION = {
    "apiVersion": "cluster.kubernetes-fleet.io/v1",
    "kind": "MemberCluster",
    "metadata": {"name": "bravelion", "labels": {"region": "east", "env": "prod"}},
    "spec": {
        "identity": {
            "kind": "ServiceAccount",
            "name": "fleet-member-bravelion",
            "namespace": "fleet-system",
            "apiGroup": "",
        },
        "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}],
    },
    "status": {"properties": {"example.com/cost": {"value": "0.25"}}},
}
PLAIN = {
    "name": "bravelion",
    "labels": {"region": "east", "env": "prod"},
    "taints": [{"key": "gpu", "value": "true"}],
    "properties": {"example.com/cost": "0.25"},
}
TABLE = """name,labels,taints,label:region,property:example.com/cost
bravelion,env=prod,gpu=true:NoSchedule,east,0.25
"""


def read(source: str | bytes, name: str = "clusters") -> list[MemberRead]:
    content = source.encode() if isinstance(source, str) else source
    return read_members(content, name=name).members


def documents(source: str | bytes, name: str = "clusters") -> list[Document]:
    return [member_read.document for member_read in read(source, name)]


def errors(
    source: str | bytes, name: str = "clusters"
) -> list[tuple[str, str, int | None]]:
    with pytest.raises(InvalidManifest) as raised:
        read(source, name)
    found = raised.value.errors
    assert {error.code for error in found} <= CODES
    assert [split_path(error.path) for error in found]
    return [(error.path, error.code, error.line) for error in found]


# YAML


def test_what_kubectl_prints_is_kept_as_written() -> None:
    found = read(MEMBERS, "members.yaml")

    assert [member_read.name for member_read in found] == ["bravelion", "smartfish"]
    assert found[0].document["metadata"]["generation"] == 2
    assert [member_read.member for member_read in found] == [
        parse_member(member_read.document) for member_read in found
    ]


@pytest.mark.parametrize("name", ["members.json", "members", "members.csv"])
def test_its_json_is_read_by_content_whatever_the_name(name: str) -> None:
    text = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": documents(MEMBERS)}, indent=1
    )

    assert documents(text, name) == documents(MEMBERS)


def test_the_plain_form_in_yaml_becomes_a_member_cluster() -> None:
    assert documents(f"# one\n- {json.dumps(PLAIN)}\n", "clusters.yaml") == [BRAVELION]


def test_every_fault_of_every_document_has_its_line() -> None:
    text = (
        "- {name: A, labels: {env: true}}\n"
        "- name: b\n"
        "  labels: {x y: z}\n"
        "  color: red\n"
        "- {name: c, taints: [{key: gpu, effect: NoExecute}], properties: {cost: [1]}}\n"
    )

    assert errors(text) == [
        ("name", "bad-format", 1),
        ("labels.env", "wrong-type", 1),
        ('labels["x y"]', "bad-format", 3),
        ("taints[0].effect", "not-one-of", 5),
        ("properties.cost", "wrong-type", 5),
    ]


def test_faults_of_a_document_have_its_own_paths() -> None:
    text = "---\n".join(
        [
            dump_yaml(member(metadata={"name": "a"})),
            dump_yaml(member(metadata={"name": "b"}, taints=[{}])),
        ]
    )

    assert errors(text) == [
        ("spec.taints[0].key", "required", 23),
        ("spec.taints[0].effect", "required", 23),
    ]


def test_other_kinds_are_refused() -> None:
    text = dump_yaml({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})

    assert errors(text) == [("kind", "kind-not-supported", 2)]


# JSON


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([PLAIN]),
        json.dumps([PLAIN], indent=2),
        json.dumps(PLAIN),
        json.dumps(PLAIN) + "\n",
    ],
)
def test_json_of_plain_objects_becomes_member_clusters(text: str) -> None:
    assert documents(text, "clusters.json") == [BRAVELION]


def test_json_lines_may_have_empty_ones_between() -> None:
    text = '{"name": "a"}\n\n{"name": "b"}\r\n'

    assert [member_read.name for member_read in read(text)] == ["a", "b"]


def test_every_bad_json_line_is_reported() -> None:
    text = '{"name": "a"}\n{"name": \n{"name": "b", "name": "c"}\n[]\n{"name": "a"}'

    assert errors(text) == [
        ("", "bad-syntax", 2),
        ("", "duplicate", 3),
        ("", "wrong-type", 4),
        ("name", "duplicate", 5),
    ]


def test_the_ending_of_the_name_shows_json_lines_where_the_first_is_broken() -> None:
    assert errors('{"name"\n{"name": "a"}', "clusters.ndjson") == [
        ("", "bad-syntax", 1)
    ]


def test_json_texts_divided_as_yaml_documents_are_yaml() -> None:
    assert len(read('{"name": "a"}\n---\n{"name": "b"}\n')) == 2


# Tables


@pytest.mark.parametrize("name", ["clusters.csv", "clusters", "clusters.yaml"])
def test_a_table_is_read_by_its_header_whatever_the_name(name: str) -> None:
    assert documents(TABLE, name) == [
        {
            **BRAVELION,
            "metadata": {
                "name": "bravelion",
                "labels": {"region": "east", "env": "prod"},
            },
        }
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TABLE,
        TABLE.replace("\n", "\r\n"),
        TABLE.replace("\n", "\r"),
        TABLE.rstrip("\n"),
        f"\n{TABLE}\n\n,,,,\n",
        TABLE.replace("\n", ",,\n"),
        TABLE.replace(",", " , "),
        '"name","labels","taints","label:region","property:example.com/cost"\n'
        '"bravelion","env=prod;","gpu=true:NoSchedule","east","0.25"\n',
    ],
    ids=[
        "BOM",
        "CRLF",
        "CR",
        "no last break",
        "empty lines",
        "empty columns",
        "blanks",
        "quotes",
    ],
)
def test_a_table_may_be_written_as_spreadsheets_do(text: str) -> None:
    assert documents(text) == [BRAVELION]


def test_a_row_may_end_early_and_its_cells_may_be_empty() -> None:
    text = "name,label:region,label:env\na\nb,,prod\n"

    assert [member_read.member.metadata.labels for member_read in read(text)] == [
        {},
        {"env": "prod"},
    ]


def test_several_labels_and_taints_stand_in_one_cell() -> None:
    text = "name,labels,taints\na,b=1;example.com/c=;d=2,x:NoSchedule; y=z:NoSchedule\n"

    (found,) = read(text)

    assert found.member.metadata.labels == {"b": "1", "example.com/c": "", "d": "2"}
    assert [(taint.key, taint.value) for taint in found.member.spec.taints] == [
        ("x", ""),
        ("y", "z"),
    ]


def test_a_row_after_a_cell_of_several_lines_has_its_line() -> None:
    text = 'name,labels\nA,"b=1;\nc=2"\nD,\n'

    assert errors(text) == [("name", "bad-format", 2), ("name", "bad-format", 4)]


def test_every_fault_of_every_row_is_reported_at_once() -> None:
    text = (
        "name,label:region,labels,taints,property:cost\n"
        "A,east west,env,gpu,1\n"
        "b,east,region=west;x y=1,gpu:NoExecute;gpu=a b:NoSchedule,1\n"
        "c,east,,,1,more\n"
        ",east,,,1\n"
        "b,east,,,1\n"
    )

    assert errors(text) == [
        ("labels", "bad-format", 2),
        ("taints", "bad-format", 2),
        ("name", "bad-format", 2),
        ('["label:region"]', "bad-format", 2),
        ("labels", "duplicate", 3),
        ("labels", "bad-format", 3),
        ("taints", "not-one-of", 3),
        ("taints", "bad-format", 3),
        ("", "too-many", 4),
        ("name", "required", 5),
        ("name", "duplicate", 6),
    ]


def test_faults_of_the_header_are_reported_with_those_of_the_rows() -> None:
    text = "name,color,label:x y,name,property:\nA,red,1,,2\n"

    assert errors(text) == [
        ('["label:x y"]', "bad-format", 1),
        ('["property:"]', "bad-format", 1),
        ("name", "duplicate", 1),
        ("name", "bad-format", 2),
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("name,color\na,red\n", "color"),
        ("name;color\na;red\n", "color"),
        ("- {name: a, color: red}", "color"),
        (dump_yaml({**member(metadata={"name": "a"}), "color": "red"}), "color"),
        (
            dump_yaml(member(metadata={"name": "a"}, newField={"x": 1})),
            "spec.newField",
        ),
    ],
)
def test_an_unknown_field_is_a_note(text: str, path: str) -> None:
    found = read_members(text.encode(), name="clusters")

    assert [note.warning.path for note in found.notes] == [path]
    assert "red" not in str(found.members[0].document)
    assert "newField" not in found.members[0].document["spec"]


@pytest.mark.parametrize("pairs", ["env=prod,x=1", '"env=prod;x=1"'])
def test_columns_and_pairs_are_divided_by_commas_or_semicolons(pairs: str) -> None:
    text = f"name;labels;taints;label:region\nb;{pairs};gpu=true:NoSchedule;east\n"

    (found,) = read(text)

    assert found.member.metadata.labels == {"env": "prod", "x": "1", "region": "east"}
    assert found.member.spec.taints[0].key == "gpu"


@pytest.mark.parametrize(
    "text", ["", "cluster,region\na,east\n", "name|region\na|east\n"]
)
def test_a_table_without_names_is_no_table(text: str) -> None:
    assert ("", "required", 1) in errors(text, "clusters.csv")


def test_a_table_that_breaks_off_shows_the_faults_above_too() -> None:
    assert errors('name\nA\n"b\n') == [("name", "bad-format", 2), ("", "bad-syntax", 3)]


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "name\n", "[]", "kind: List\nitems: []\n"]
)
def test_a_file_without_clusters_is_refused(text: str) -> None:
    assert errors(text) == [("", "required", None)]


@pytest.mark.parametrize(
    "source", [b"name\n\xff\n", b"name\na\x00\n", "näme\n".encode("utf-16")]
)
def test_what_is_no_text_is_refused(source: bytes) -> None:
    assert [code for _, code, _ in errors(source)] == ["not-text"]


def test_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.tables.MOST_DOCUMENTS", 3)

    assert len(read("name\na\nb\nc\n")) == 3
    assert errors("name\na\nb\nc\nd\n") == [("", "too-many", 5)]


def test_a_name_stands_once_in_a_file_of_any_format() -> None:
    twice = "- {name: a}\n- {name: b}\n- {name: a}\n"

    assert errors(twice) == [("name", "duplicate", 3)]
    assert errors(f"{MEMBERS.decode()}  - {json.dumps(member())}\n") == [
        ("metadata.name", "duplicate", 36)
    ]


# Written and read again

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = st.text(LETTERS, min_size=1, max_size=6)
KEYS = WORDS | st.builds("example.com/{}".format, WORDS)
TAINTS = st.dictionaries(KEYS, WORDS | st.just(""), max_size=3).map(
    lambda taints: [
        {"key": key, "value": value, "effect": "NoSchedule"}
        for key, value in taints.items()
    ]
)
PLAIN_CLUSTERS: st.SearchStrategy[Document] = st.fixed_dictionaries(
    {
        "name": WORDS,
        "labels": st.dictionaries(KEYS, WORDS | st.just(""), max_size=4),
        "taints": TAINTS,
        "properties": st.dictionaries(
            KEYS,
            st.sampled_from(["1", "0.25", "1Gi", "a,b", '"x"', "say; what=1", "1\n2"]),
            max_size=3,
        ),
    }
)


def _name(one: Document) -> str:
    return str(one["name"])


FLEETS = st.lists(PLAIN_CLUSTERS, min_size=1, max_size=6, unique_by=_name)


@pytest.mark.nightly
@given(
    fleet=FLEETS,
    as_columns=st.sets(KEYS),
    line_end=st.sampled_from(["\n", "\r\n"]),
    data=st.data(),
)
def test_clusters_written_as_a_table_are_the_same_when_read(
    fleet: list[Document], as_columns: set[str], line_end: str, data: st.DataObject
) -> None:
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    text = data.draw(st.sampled_from(["", "\ufeff"])) + written(
        fleet, as_columns, line_end, quoting
    )

    assert documents(text) == documents(json.dumps(fleet))


def written(
    fleet: list[Document], as_columns: set[str], line_end: str, quoting: Any
) -> str:
    """Write clusters as a table: some labels as columns where they have values, the others in one cell."""
    columns = as_columns | {
        key for cluster in fleet for key in list(cluster["labels"])[:1]
    }
    properties = {name for cluster in fleet for name in cluster["properties"]}
    rows = [_row(cluster, columns) for cluster in fleet]
    fields = ["name", "labels", "taints"]
    fields += [
        *(f"label:{key}" for key in columns),
        *(f"property:{name}" for name in properties),
    ]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fields, lineterminator=line_end, quoting=quoting)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(one: Document, columns: set[str]) -> dict[str, str]:
    own = {key for key, value in one["labels"].items() if key in columns and value}
    return {
        "name": one["name"],
        "labels": ";".join(
            f"{key}={value}" for key, value in one["labels"].items() if key not in own
        ),
        "taints": "; ".join(
            f"{taint['key']}={taint['value']}:NoSchedule" for taint in one["taints"]
        ),
        **{f"label:{key}": one["labels"][key] for key in own},
        **{f"property:{name}": value for name, value in one["properties"].items()},
    }


@pytest.mark.nightly
@given(
    st.binary(max_size=200) | st.text(max_size=200).map(str.encode),
    st.sampled_from(["a.csv", "a.jsonl", "a"]),
)
def test_whatever_the_bytes_they_are_read_or_refused(source: bytes, name: str) -> None:
    found: list[MemberRead] = []

    with suppress(InvalidManifest):
        found = read(source, name)

    assert all(
        member_read.member == parse_member(member_read.document)
        for member_read in found
    )


# Size


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("form", "count"),
    [("list", 100), ("documents", 1000), ("json", 100), ("json lines", 5000)],
)
def test_thousands_of_clusters_are_read_as_they_were_written(
    form: str, count: int
) -> None:
    clusters = list(demo_of(100 if count == 100 else 5000, now=NOW).clusters)[:count]
    text = {
        "list": lambda: dump_yaml(
            {"apiVersion": "v1", "kind": "List", "items": clusters}
        ),
        "documents": lambda: "---\n".join(map(dump_yaml, clusters)),
        "json": lambda: json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": clusters}, indent=1
        ),
        "json lines": lambda: "\n".join(map(json.dumps, clusters)),
    }[form]()

    began = time.process_time()
    found = read(text)
    seconds = time.process_time() - began

    assert [member_read.document for member_read in found] == clusters
    assert seconds < 10
