"""Comparisons in any repository: foreign files, unreadable ones, and kustomizations."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from fleetui.apimachinery.links import linked_text
from fleetui.apimachinery.yaml import load_documents
from placements.services.impact import kustomize
from tests.commands import call_command
from tests.rows import member_document, pick_n_spec, placement_document
from tests.services.test_impact_diff import write

FOREIGN = {
    ".github/workflows/impact.yml": "name: impact\non:\n  pull_request:\njobs: {}\n",
    "chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
    "chart/templates/deployment.yaml": (
        "{{- if .Values.enabled }}\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n"
    ),
    "cloud/stack.yaml": "Resources:\n  A:\n    Type: AWS::S3::Bucket\n    Properties: {N: !Ref Name}\n",
    ".gitlab-ci.yml": "job:\n  script:\n  - !reference [.setup, script]\n",
    "more/merge.yaml": "a: &a {b: 1}\nc:\n  <<: *a\n",
    "more/twice.yaml": "a: 1\na: 2\n",
    "more/tabs.yaml": "a:\n\tb: 1\n",
    "more/binary.yaml": "\x00\x01",
    "more/data.json": "{not json",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that commits files and returns the revision."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def git(*arguments: str) -> str:
        user = ("-c", "user.name=ana", "-c", "user.email=ana@fleet.invalid")
        done = subprocess.run(
            ["git", *user, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(files: dict[str, Any]) -> str:
        write(folder, files)
        git("add", "-A")
        git("commit", "-qm", "change")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return commit


def run(command: str, *arguments: Any) -> tuple[str, str, int]:
    out, errors = StringIO(), StringIO()
    try:
        call_command(command, *map(str, arguments), stdout=out, stderr=errors)
    except SystemExit as end:
        return out.getvalue(), errors.getvalue(), int(end.code or 0)
    except CommandError as error:
        return out.getvalue(), f"{errors.getvalue()}{error}", error.returncode
    return out.getvalue(), errors.getvalue(), 0


def diff(base: str, head: str, *more: str) -> tuple[dict[str, Any], str, int]:
    out, errors, status = run("simulate", "--diff", base, head, "-o", "json", *more)
    return json.loads(out) if out else {}, errors, status


def web(number: int, name: str = "web") -> dict[str, Any]:
    return placement_document(name, pick_n_spec(number))


def members() -> list[dict[str, Any]]:
    return [member_document(name) for name in ("a", "b", "c")]


def joins(document: dict[str, Any]) -> dict[str, int]:
    return {row["placement"]: len(row["joins"]) for row in document["rows"]}


# --- foreign and unreadable files ---------------------------------------------------------------


def test_foreign_files_are_passed_over(repository: Callable[..., str]) -> None:
    base = repository(
        {**FOREIGN, "fleet/members.yaml": members(), "fleet/web.yaml": [web(1)]}
    )
    head = repository({"fleet/web.yaml": [web(2)]})

    document, errors, status = diff(base, head)

    assert (status, errors) == (0, "")
    assert (joins(document), document["notes"], document["incomplete"]) == (
        {"web": 1},
        [],
        False,
    )
    for name in FOREIGN:
        out, errors, status = run("checks", "-f", name)
        assert (status, out, errors) == (
            0,
            "No findings.\n",
            f"{name}:1: contains nothing that is checked\n",
        )
    out, errors, status = run("checks", "-f", ".", "-o", "json")
    assert (status, errors, json.loads(out)["notes"]) == (0, "", [])


UNREADABLE = {
    "a merge key": ("kind: ClusterResourcePlacement\nmetadata: {<<: {name: x}}\n", 2),
    "a tag": (
        "apiVersion: placement.kubernetes-fleet.io/v1\nkind: X\nspec: !Ref Name\n",
        3,
    ),
    "a template": (
        "kind: ClusterResourcePlacement\nmetadata:\n  name: {{ .Release.Name }}\n",
        3,
    ),
    "a quoted template": (
        "kind: ClusterResourcePlacement\nmetadata:\n  name: '{{ .Release.Name }}'\n",
        3,
    ),
    "a duplicate key": ("kind: MemberCluster\nkind: MemberCluster\n", 2),
    "a cut off List": ("apiVersion: v1\nitems:\n- {kind: MemberCluster}\n", 1),
}


@pytest.mark.parametrize("case", list(UNREADABLE))
def test_what_cannot_be_read_and_may_be_ours_is_a_note(
    repository: Callable[..., str], case: str
) -> None:
    text, line = UNREADABLE[case]
    base = repository(
        {"members.yaml": members(), "web.yaml": [web(1)], "odd.yaml": text}
    )
    head = repository({"web.yaml": [web(2)]})

    document, errors, status = diff(base, head)

    assert (status, joins(document)) == (0, {"web": 1})
    [note] = document["notes"]
    assert (note["file"], note["line"], note["incomplete"]) == ("odd.yaml", line, False)
    assert errors == f"odd.yaml:{line}: {note['message']}\n"
    assert note["message"].startswith("not read: ")
    comment = run("simulate", "--diff", base, head)[0]
    assert f"- ⚠️ odd.yaml:{line}: not read: " in comment
    [result] = [
        one
        for one in json.loads(run("simulate", "--diff", base, head, "-o", "sarif")[0])[
            "runs"
        ][0]["results"]
        if one["ruleId"] == "not-read"
    ]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    out, errors, status = run("checks", "-f", "odd.yaml", "-o", "json")
    assert (status, json.loads(out)["notes"], errors.count("\n")) == (0, [note], 1)


def test_the_other_documents_of_an_unreadable_file_are_read(
    repository: Callable[..., str],
) -> None:
    several = [
        json.dumps(web(1)),
        "on:\n  push:",
        "kind: ClusterResourcePlacement\nspec: !Ref X",
        json.dumps(web(1, "shop")),
    ]
    base = repository({"members.yaml": members(), "all.yaml": "\n---\n".join(several)})
    several[0], several[3] = json.dumps(web(2)), json.dumps(web(3, "shop"))
    head = repository({"all.yaml": "\n---\n".join(several)})

    document, _, status = diff(base, head)

    assert (status, joins(document)) == (0, {"web": 1, "shop": 2})
    assert {row["placement"]: row["line"] for row in document["rows"]} == {
        "web": 1,
        "shop": 9,
    }
    assert [(note["file"], note["line"]) for note in document["notes"]] == [
        ("all.yaml", 7)
    ]


def test_a_readable_placement_that_is_invalid_still_ends_the_comparison(
    repository: Callable[..., str],
) -> None:
    base = repository({"members.yaml": members(), "web.yaml": [web(1)]})
    wrong = web(1)
    wrong["spec"]["policy"]["numberOfClusters"] = "many"
    head = repository({"web.yaml": [wrong]})

    _, errors, status = diff(base, head)

    assert status == 2
    assert "web.yaml: spec.policy.numberOfClusters (line" in errors


def test_each_row_links_to_a_preview_on_a_console(
    repository: Callable[..., str],
) -> None:
    base = repository({"members.yaml": members(), "web.yaml": [web(1), web(1, "old")]})
    head = repository({"web.yaml": [web(2)]})

    console = "https://fleet.example.com"
    text, _, status = run("simulate", "--diff", base, head, "--console", console)
    _, errors, refused = run("simulate", "--diff", base, head, "--console", "example")

    assert (status, refused) == (0, 2)
    assert "--console: write an address such as" in errors
    rows = {line.split("<br>")[0]: line for line in text.splitlines() if "<br>" in line}
    link = rows["| web"].partition("[Preview](")[2].partition(")")[0]
    assert link.startswith(f"{console}/previews/?content=")
    document = load_documents(linked_text(link.partition("content=")[2]))[0].data
    assert document["spec"]["policy"]["numberOfClusters"] == 2
    assert "Preview" not in rows["| old"], "what is removed has no preview"


# --- charts -------------------------------------------------------------------------------------

HELM = """#!/bin/sh
[ "$1" = template ] || exit 2
echo "$@" >> "{log}/helm"
number=$(cat "$3/values.yaml" | sed -n 's/number: //p')
for argument in "$@"; do
  case "$argument" in --values=*) number=$(sed -n 's/number: //p' "${{argument#--values=}}");; esac
done
sed -e "s/{{{{ .Values.number }}}}/$number/" -e "s/{{{{ .Release.Name }}}}/$2/" "$3"/templates/*.yaml
"""
TEMPLATE = (
    "apiVersion: placement.kubernetes-fleet.io/v1\nkind: ClusterResourcePlacement\n"
    "metadata: {name: {{ .Release.Name }}}\nspec:\n"
    "  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]\n"
    "  policy: {placementType: PickN, numberOfClusters: {{ .Values.number }}}\n"
)
CHART = {
    "members.yaml": members(),
    "charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "charts/web/templates/placement.yaml": TEMPLATE,
}


@pytest.fixture
def helm(calls: Path) -> Path:
    """Put a program named helm beside kustomize; return the folder with what it was called with."""
    program = calls.parent / "programs" / "helm"
    program.write_text(HELM.format(log=calls))
    program.chmod(0o755)
    return calls


def test_a_chart_is_rendered_with_its_values(
    repository: Callable[..., str], helm: Path
) -> None:
    base = repository({**CHART, "charts/web/values.yaml": "number: 1\n"})
    head = repository({"charts/web/values.yaml": "number: 2\n"})

    document, errors, status = diff(base, head)

    assert (status, errors, document["notes"]) == (0, "", [])
    assert joins(document) == {"web": 1}
    assert document["rows"][0]["file"] == "charts/web/Chart.yaml"
    assert len((helm / "helm").read_text().splitlines()) == 2


@pytest.mark.usefixtures("helm")
def test_values_of_an_environment_are_for_their_chart_or_for_all(
    repository: Callable[..., str],
) -> None:
    values = "charts/web/values.yaml", "charts/web/prod.yaml", "prod.yaml"
    base = repository({**CHART, **dict.fromkeys(values, "number: 1\n")})
    head = repository({"prod.yaml": "number: 3\n", values[1]: "number: 2\n"})

    own, *_ = diff(base, head, "--values", values[1])
    shared, *_ = diff(base, head, "--values", "prod.yaml")
    _, errors, status = diff(base, head, "--values", "stage.yaml")

    assert (joins(own), joins(shared)) == ({"web": 1}, {"web": 2})
    assert (status, errors) == (
        2,
        "--values stage.yaml: no such file in BASE and HEAD\n",
    )


def test_a_folder_whose_name_is_an_option_is_none_for_helm(
    repository: Callable[..., str], helm: Path
) -> None:
    name = "--post-renderer=evil"
    files = {path.replace("charts/web", name): text for path, text in CHART.items()}
    base = repository({**files, f"{name}/values.yaml": "number: 1\n"})
    head = repository({f"{name}/values.yaml": "number: 2\n"})

    document, errors, status = diff(base, head)

    assert (status, errors, joins(document)) == (0, "", {"release": 1})
    assert (helm / "helm").read_text().startswith("template release /")


def test_without_helm_its_charts_are_named(
    repository: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repository({**CHART, "charts/web/values.yaml": "number: 1\n"})
    head = repository({"charts/web/values.yaml": "number: 2\n"})
    monkeypatch.setattr(shutil, "which", lambda _: None)

    document, errors, status = diff(base, head, "--require-render")

    message = "not rendered: helm is not installed. The result is incomplete."
    assert (status, document["incomplete"]) == (3, True)
    assert f"charts/web/Chart.yaml:1: {message}\n" in errors
    assert "charts/web/templates/placement.yaml:3: not read: " in errors


# --- kustomizations -----------------------------------------------------------------------------

FAKE = """#!/bin/sh
[ "$1" = build ] || exit 2
env > "{log}/env"; echo "$2" >> "{log}/calls"; ls -A "$HOME" > "{log}/home"
cd "$2" && [ ! -f fail ] || {{ echo "no such patch in $2" >&2; exit 1; }}
[ ! -f wait ] || {{ sleep 600 & echo $! > "{log}/child"; wait; }}
number=$(sed -n 's/.*value: //p' kustomization.yaml)
sed "s/numberOfClusters: .*/numberOfClusters: $number/" ../../base/web.yaml
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program named kustomize first on the path; return the folder with what it was called with."""
    programs, log = tmp_path / "programs", tmp_path / "log"
    for folder in (programs, log):
        folder.mkdir()
    (programs / "kustomize").write_text(FAKE.format(log=log))
    (programs / "kustomize").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return log


def overlay(number: int) -> str:
    patch = f"    - op: replace\n      path: /spec/policy/numberOfClusters\n      value: {number}\n"
    target = "{kind: ClusterResourcePlacement, name: web}"
    return f"resources: [../../base]\npatches:\n- target: {target}\n  patch: |\n{patch}"


def kustomized(number: int) -> dict[str, Any]:
    return {
        "members.yaml": members(),
        "base/web.yaml": [web(1)],
        "base/kustomization.yaml": "resources: [web.yaml]\n",
        "overlays/prod/kustomization.yaml": overlay(number),
    }


def test_a_change_in_an_overlay_alone_is_rendered(
    repository: Callable[..., str], calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI_SECRET", "s3cret")
    base, head = repository(kustomized(1)), repository(kustomized(2))

    document, errors, status = diff(base, head)

    assert (status, errors, document["notes"]) == (0, "", [])
    assert (document["placements"], joins(document)) == (1, {"web": 1}), (
        "the base does not count on its own"
    )
    assert document["rows"][0]["file"] == "overlays/prod/kustomization.yaml"
    environment = (calls / "env").read_text()
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}
    assert "s3cret" not in environment
    assert (calls / "home").read_text() == "", "its home folder is empty"
    folders = [Path(line) for line in (calls / "calls").read_text().splitlines()]
    assert ["/".join(folder.parts[-2:]) for folder in folders] == ["overlays/prod"] * 2
    assert not any(folder.exists() for folder in folders), (
        "temporary checkouts are removed"
    )


def test_what_is_equal_on_both_sides_is_rendered_once_and_foreign_kustomizations_never(
    repository: Callable[..., str], calls: Path
) -> None:
    foreign = {
        "app/kustomization.yaml": "resources: [a.yaml]\n",
        "app/a.yaml": "kind: Deployment\n",
    }
    base = repository({**kustomized(2), **foreign})
    head = repository({"app/a.yaml": "kind: Service\n", "README.md": "new"})

    document, _, status = diff(base, head)

    assert (status, document["placements"], document["rows"]) == (0, 1, [])
    assert len((calls / "calls").read_text().splitlines()) == 1


def test_each_environment_has_its_own_row(
    repository: Callable[..., str], calls: Path
) -> None:
    test = {"overlays/test/kustomization.yaml": overlay(1)}
    base, head = repository({**kustomized(1), **test}), repository(kustomized(3))

    document, _, status = diff(base, head)

    assert (status, document["placements"]) == (0, 2)
    assert joins(document) == {"web (overlays/prod)": 2}
    document, _, _ = diff(
        base, head, "--path", "overlays/prod", "--path", "members.yaml"
    )
    assert joins(document) == {"web": 2}
    assert calls.exists()


@pytest.mark.parametrize("why", ["missing", "failing", "slow", "none"])
def test_what_is_not_rendered_marks_the_result_as_incomplete(
    repository: Callable[..., str],
    calls: Path,
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    extra = {
        f"overlays/prod/{ {'failing': 'fail', 'slow': 'wait'}.get(why, 'other') }": "x"
    }
    patch = {
        "overlays/prod/patch.yaml": "kind: ClusterResourcePlacement\nmetadata: {name: web}\n"
    }
    merged = {"overlays/prod/kustomization.yaml": f"{overlay(1)}- path: patch.yaml\n"}
    base = repository({**kustomized(1), **extra, **patch, **merged})
    head = repository(
        {"overlays/prod/kustomization.yaml": f"{overlay(2)}- path: patch.yaml\n"}
    )
    if why == "missing":
        monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(kustomize, "RENDER_SECONDS", 1 if why == "slow" else 60)
    more = ["--render", "none"] if why == "none" else []
    reason = {
        "missing": "not rendered: neither kustomize nor kubectl is installed.",
        "failing": "not rendered: kustomize build: no such patch in overlays/prod.",
        "slow": "not rendered: kustomize took longer than 1 seconds.",
        "none": "not rendered: --render none.",
    }[why]

    document, errors, status = diff(base, head, *more)

    place = "overlays/prod/kustomization.yaml:1"
    assert (status, errors) == (0, f"{place}: {reason} The result is incomplete.\n")
    assert (document["incomplete"], document["notes"][0]["incomplete"]) == (True, True)
    assert (document["placements"], document["rows"]) == (1, []), (
        "the base is read as written"
    )
    comment, _, _ = run("simulate", "--diff", base, head, *more)
    assert f"- ⚠️ **Incomplete:** {place}: {reason}" in comment
    assert (
        '"not-rendered"'
        in run("simulate", "--diff", base, head, "-o", "sarif", *more)[0]
    )
    assert diff(base, head, "--require-render", *more)[2] == 3
    if why == "slow":
        child = int((calls / "child").read_text())
        assert (
            not Path(f"/proc/{child}").exists()
            or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
        )


def test_the_checks_pass_over_parts_of_kustomizations(
    repository: Callable[..., str], calls: Path
) -> None:
    patch = {
        "overlays/prod/patch.yaml": "kind: ClusterResourcePlacement\nmetadata: {name: web}\n"
    }
    merged = {"overlays/prod/kustomization.yaml": f"{overlay(1)}- path: patch.yaml\n"}
    repository({**kustomized(1), **patch, **merged})

    for arguments in (
        ["."],
        ["overlays/prod/patch.yaml"],
        ["base/web.yaml", "overlays/prod/patch.yaml"],
    ):
        assert run("checks", "-f", *arguments)[2] == 0, arguments
    assert not (calls / "calls").exists()


@pytest.mark.skipif(
    not (shutil.which("kustomize") or shutil.which("kubectl")), reason="needs kustomize"
)
def test_with_the_real_program(repository: Callable[..., str]) -> None:
    base, head = repository(kustomized(1)), repository(kustomized(2))

    document, errors, status = diff(base, head)

    assert (status, errors, joins(document)) == (0, "", {"web": 1})
