"""Whatever the input, simulate ends with a status and a message, never with a traceback, and quickly."""

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.services.simulate_runs import NINE, WEB, Run, simulate

TEN_MEGABYTES = 10 * 1024 * 1024
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)
HOSTILE = {
    "brackets": b"[" * TEN_MEGABYTES,
    "braces": b"{a: " * (TEN_MEGABYTES // 4),
    "dashes": b"- " * (TEN_MEGABYTES // 2),
    "json": b'{"a":' * (TEN_MEGABYTES // 5),
    "indents": b"".join(b" " * depth + b"a:\n" for depth in range(4500)),
    "bomb": BOMB.encode(),
    "zeros": bytes(TEN_MEGABYTES),
    "binary": bytes(range(256)) * 100,
    "digits": b"a: " + b"9" * TEN_MEGABYTES,
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("option", ["--clusters", "--placement", "--bindings"])
def test_hostile_text_is_refused_quickly(
    tmp_path: Path, name: str, option: str
) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[name])
    files: dict[str, object] = {"--clusters": NINE, "--placement": WEB, option: path}

    began = time.process_time()
    run = simulate(*(part for pair in files.items() for part in pair))

    assert run.status == 2
    assert "hostile: " in run.errors
    assert time.process_time() - began < 10, (
        "hostile input must not cost much more than reading it"
    )


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**40),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.dates(),
)
WORDS = st.sampled_from(
    sorted(
        {
            *WEB.read_text("utf-8").split(),
            "clusters",
            "bindings",
            "items",
            "List",
            "taints",
        }
    )
)
DATA = st.recursive(
    SCALARS | WORDS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=25,
)


def _ends_well(run: Run) -> None:
    assert run.status in (0, 1, 2)
    assert "Traceback" not in run.errors
    assert run.status != 2 or run.errors


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=DATA, option=st.sampled_from(["--clusters", "--placement", "--bindings"]))
def test_arbitrary_documents_never_crash_it(
    tmp_path: Path, data: Any, option: str
) -> None:
    path = tmp_path / "fuzzed.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    files: dict[str, object] = {"--clusters": NINE, "--placement": WEB, option: path}

    _ends_well(
        simulate(*(part for pair in files.items() for part in pair), "-o", "json")
    )


@st.composite
def mutations(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw the demo's fleet or placement with one value somewhere replaced."""
    option, path = draw(st.sampled_from([("--clusters", NINE), ("--placement", WEB)]))
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    holder, key = data, None
    while (
        isinstance(inner := holder if key is None else holder[key], (dict, list))
        and inner
    ):
        holder = inner
        key = draw(
            st.sampled_from(
                sorted(holder) if isinstance(holder, dict) else range(len(holder))
            )
        )
        if draw(st.booleans()):
            break
    holder[key] = draw(DATA)
    return option, data


@pytest.mark.nightly
@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutated=mutations())
def test_a_manifest_with_one_odd_value_never_crashes_it(
    tmp_path: Path, mutated: tuple[str, Any]
) -> None:
    option, data = mutated
    path = tmp_path / "mutated.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    files: dict[str, object] = {"--clusters": NINE, "--placement": WEB, option: path}

    _ends_well(
        simulate(
            *(part for pair in files.items() for part in pair), "--why", "bravelion"
        )
    )


@given(
    lines=st.lists(
        DATA.map(lambda data: json.dumps(data, default=str)) | st.text(max_size=20),
        max_size=3,
    )
)
def test_arbitrary_case_lines_are_answered_one_by_one(lines: list[str]) -> None:
    text = "\n".join(
        line.replace("\n", " ").replace("\r", " ") for line in lines
    ).encode("utf-8", "surrogatepass")

    run = simulate("--cases", "-", stdin=text)

    assert len(run.output.splitlines()) == len(io.BytesIO(text).readlines())
    assert all(isinstance(json.loads(line), dict) for line in run.output.splitlines())
