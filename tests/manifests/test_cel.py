"""CEL expressions: what compiles, what matches, and that a process without any does not load the library."""

import json
import subprocess
import sys
from typing import Any

import pytest

from placements.manifests.cel_expression import CelError, compile_cel
from placements.manifests.cel_functions import CelScope

DOCUMENT: dict[str, Any] = {
    "metadata": {
        "name": "c1",
        "labels": {"env": "prod", "version": "1.31.2"},
        "annotations": {"config": '{"weight": 3, "zones": ["a"]}', "ip": "10.1.2.3"},
    },
    "status": {"allocatable": {"cpu": "500m"}, "conditions": None},
}
SCORES = {"usage": [{"name": "cpu", "value": 70}]}


def matches(text: str) -> bool:
    scope = CelScope()
    scope.enter(DOCUMENT, SCORES)
    return compile_cel(text).matches(DOCUMENT, scope.context)


@pytest.mark.parametrize(
    "text",
    [
        'managedCluster.metadata.?labels["region"].orValue("none") == "none"',
        'managedCluster.?metadata.labels.env.orValue("") == "prod"',
        'managedCluster.metadata.labels[?"env"].hasValue()',
        'managedCluster.metadata.annotations["config"].parseJSON().weight == 3',
        'managedCluster.metadata.annotations["config"].parseJSON().zones.exists(z, z == "a")',
        'managedCluster.scores("usage").exists(s, s.value > 50)',
        'managedCluster.metadata.region == "eu" || true',
        'quantity("1Gi") == quantity("1024Mi")',
        'quantity("1").add(quantity("500m")).compareTo(quantity("1.5")) == 0',
        'quantity("1").sub(1).sign() == 0 && quantity("2").asInteger() == 2',
        'semver("1.10.0").isGreaterThan(semver("1.9.0")) && semver("1.9.0-rc.1").isLessThan(semver("1.9.0"))',
        'semver(managedCluster.metadata.labels["version"]).minor() == 31',
        '!isSemver("v1.30.0") && !isSemver("1.30") && isSemver("1.30.0+k3s1")',
        'isSemver("1.0.0+001") && !isSemver("1.0.0-001") && !isSemver("1.0.0+a..b") && !isSemver("1.0.0-a..b")',
        'semver("1.0.0-a.2+b-c").isLessThan(semver("1.0.0-a.10"))',
        '!quantity("1.5").isInteger() && quantity("2").isInteger()',
        'managedCluster.metadata.name.find("[0-9]+") == "1"',
        '"a1b22".findAll("[0-9]+") == ["1", "22"] && "a1b22".findAll("[0-9]+", 1) == ["1"]',
        '["a", "b"].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1',
        '["a", "b", "a"].lastIndexOf("a") == 2 && "abca".lastIndexOf("a") == 3',
        'url("https://u@api.example.com:6443/x?q=1").getHostname() == "api.example.com"',
        'url("https://[::1]:80/x").getHost() == "[::1]:80" && url("/x").getScheme() == ""',
        'ip(managedCluster.metadata.annotations["ip"]).family() == 4',
        'cidr("10.0.0.0/8").containsIP("10.1.2.3") && !cidr("10.0.0.0/8").containsIP("11.0.0.1")',
        'cidr("10.0.0.0/8").containsCIDR("10.1.0.0/16") && cidr("10.1.2.3/8").masked() == cidr("10.0.0.0/8")',
        'ip.isCanonical("::1") && !ip.isCanonical("0:0:0:0:0:0:0:1")',
        '!format.dns1123Label().validate("abc").hasValue()',
        'format.named("labelValue").value().validate("a b").hasValue()',
        '"%s has %d".format(["a", 2]) == "a has 2"',
        '"GOLD".lowerAscii().charAt(0) == "g" && "a,b".split(",").join("-") == "a-b"',
        "managedCluster.status.conditions == null",
        '"[" + "]" == "[]" // a comment',
    ],
)
def test_matches(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        'managedCluster.metadata.region == "eu"',
        'managedCluster.scores("other").size() == 0',
        "managedCluster.metadata.name",
        'managedCluster.metadata.name.matches("[")',
        'managedCluster.metadata.name.find("[") == ""',
        'semver("v1.30.0").isGreaterThan(semver("1.0.0"))',
        'managedCluster.metadata.labels["env"].parseJSON() == 1',
        'managedCluster.metadata.labels["env"] > 3',
        'managedCluster.scores("usage").exists(s, has(s.quantity))',
        'quantity("x") == quantity("x")',
        "1 / 0 == 1",
    ],
)
def test_an_error_or_another_type_does_not_match(text: str) -> None:
    assert not matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense(",
        "cluster.metadata.name == 'a'",
        "unknownFunction(managedCluster)",
        "managedCluster.scores(1)",
        "managedCluster.scores()",
        'semver("1.30.0", true).major() == 1',
        '1 + "a" == 2',
        "1 == 1.0",
        "sets.contains([1], [1])",
        "math.greatest(1, 2) == 2",
        "cel.bind(x, 1, x == 1)",
        "[1].all(i, v, v == 1)",
        "managedCluster.metadata.labels.exists(l, k == 'a')",
        "now() == now()",
        "true " * 2000,
        "(" * 2000 + "true" + ")" * 2000,
    ],
)
def test_does_not_compile(text: str) -> None:
    with pytest.raises(CelError):
        compile_cel(text)


@pytest.mark.parametrize(
    "text", ["true == (1 == 1)", "1 < 2 == true", '"a" in ["a"] && 1 + 2 * 3 == 7']
)
def test_literals_of_one_type_compare(text: str) -> None:
    assert matches(text)


CHAINS = [
    "+".join(["1"] * 2001) + " > 0",
    "(" * 16 + "0" + "+1" * 2000 + ")" * 16 + " > 0",
    "(" * 1000,
    "true" + " == true" * 400,
    "managedCluster" + ".a" * 1900 + " == 1",
    "managedCluster" + "[0]" * 1300 + " == 1",
    "managedCluster" + ".?a" * 1300 + ".hasValue()",
    '"a"' + ".trim()" * 580 + ' == "a"',
    "!(" * 1000 + "true" + ")" * 1000,
    "{1:" * 1000 + "1" + "}" * 1000 + " == {}",
    "false ? true : " * 250 + "true",
    "-" * 4000 + "1 < 2",
]
_IN_A_SMALL_STACK = """
import json, sys, threading
from placements.manifests.cel_expression import CelError, compile_cel
from placements.manifests.cel_functions import CelScope

def run():
    scope = CelScope()
    scope.enter({}, {})
    for text in json.load(sys.stdin):
        try:
            compile_cel(text).matches({}, scope.context)
        except CelError:
            print("refused", flush=True)
        else:
            print("evaluated", flush=True)

threading.stack_size(256 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def _in_a_small_stack(texts: list[str]) -> list[str]:
    """Return what becomes of each expression in a thread with a stack of 256 KiB."""
    command = [sys.executable, "-c", _IN_A_SMALL_STACK]
    process = subprocess.run(
        command,
        input=json.dumps(texts),
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process.stdout.split()


def test_long_chains_do_not_overflow_a_small_stack() -> None:
    outcomes = _in_a_small_stack(CHAINS)

    assert len(outcomes) == len(CHAINS)
    assert outcomes[0] == "refused"


def test_what_the_bound_allows_fits_a_small_stack() -> None:
    texts = [
        "0" + "+1" * 180 + " > 0",
        "(" * 7 + "0" + "+1" * 90 + ")" * 7 + " > 0",
        "(" * 15 + "true" + ")" * 15,
        "[1].all(x, " * 13 + "true" + ")" * 13,
        "size(" * 13 + "[1]" + ")" * 13 + " == 1",
        " || ".join(["managedCluster.metadata.name == 'a'"] * 100),
        "false ? true : " * 70 + "(" * 15 + "true" + ")" * 15,
    ]

    assert _in_a_small_stack(texts) == ["evaluated"] * len(texts)


def test_nested_macros_have_a_limit_of_steps() -> None:
    numbers = f"[{', '.join(map(str, range(200)))}]"
    nested = f"{numbers}.exists(a, {numbers}.exists(b, {numbers}.exists(c, a + b + c == -1)) || true)"

    assert not matches(nested)


def test_a_process_without_expressions_does_not_load_the_library() -> None:
    code = (
        "import sys; import placements.engine.scheduling.scheduler; "
        "import placements.manifests.placement; "
        "sys.exit('cel' in sys.modules or 're2' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
