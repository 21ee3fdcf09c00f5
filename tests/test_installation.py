"""A wheel has all that the console needs, and what GitHub and pre-commit read does what it says."""

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.management import get_commands
from pytest_django.live_server_helper import LiveServer

from fleetui import __version__, remote
from fleetui.apimachinery.yaml import load_documents
from fleetui.errors import BAD_INPUT
from fleetui.locations import data_folder
from placements.client.main import PROGRAM, main, verbs_of
from tests.commands import PARSER, call_command
from tests.conftest import OUR_APPS
from tests.rows import api_token, joined, member_document, person
from tests.runtime.processes import ROOT, watching
from tests.services.test_impact_sources import FOREIGN

NINE, WEB = (
    ROOT / "docs" / "examples" / "nine.yaml",
    ROOT / "docs" / "examples" / "web.yaml",
)
FOLDERS = {
    "fleetui": "fleetui",
    "clusters": "clusters",
    "placements": "placements",
    "templates": "fleetui/assets/templates",
    "static": "fleetui/assets/static",
    "docs": "fleetui/assets/docs",
    "CHANGELOG.md": "fleetui/assets/CHANGELOG.md",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as pip does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an environment of its own, without a registry; return its programs.

    Its dependencies are those of this environment.
    """
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True
    )
    inside = next(folder.glob("lib/python*/site-packages"))
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--quiet",
    ]
    subprocess.run([*install, "--no-index", "--no-deps", str(wheel)], check=True)
    (inside / "dependencies.pth").write_text(
        next(one for one in sys.path if one.endswith("site-packages"))
    )
    return folder / "bin"


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLEETUI_", "XDG_"))
    }
    return subprocess.run(
        [str(one) for one in command],
        cwd=variables.get("HOME", "/"),
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.nightly
def test_a_wheel_has_every_file_of_the_product(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", *FOLDERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = set()
    for path in listed.stdout.splitlines():
        source = next(
            folder for folder in FOLDERS if f"{path}/".startswith(f"{folder}/")
        )
        wanted.add(FOLDERS[source] + path.removeprefix(source))

    assert len(wanted) > 500
    assert {one for one in there if ".dist-info/" not in one} == wanted


def test_without_a_source_tree_data_is_in_the_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert data_folder({"HOME": "/home/ana"}) == ROOT / "var"
    monkeypatch.setattr("fleetui.locations.is_source_tree", lambda: False)

    assert str(data_folder({"HOME": "/home/ana"})) == "/home/ana/.local/share/fleetui"
    assert (
        str(data_folder({"HOME": "/home/ana", "XDG_DATA_HOME": "/data"}))
        == "/data/fleetui"
    )
    assert (
        str(data_folder({"HOME": "/home/ana", "XDG_DATA_HOME": "./x"}))
        == "/home/ana/.local/share/fleetui"
    )
    assert str(data_folder({})) == "/var/lib/fleetui"


def completion_of(shell: str) -> str:
    out = StringIO()
    call_command("completion", shell, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("shell", ["zsh", "tcsh", "fish", "powershell"])
def test_the_completion_of_each_shell_names_every_command(shell: str) -> None:
    script = completion_of(shell)

    assert {name for name in get_commands() if name not in script} == set()


def test_help_and_completion_name_every_command_and_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "completion"
    script.write_text(completion_of("bash"))
    for asked in ([], ["--help"], ["help"]):
        main([f"/usr/bin/{PROGRAM}", *asked])
        listed = re.split(r"[\s,;]+", capsys.readouterr().out)
        own = {
            name
            for name, app in get_commands().items()
            if str(app).partition(".")[0] in OUR_APPS
        }
        assert (own | verbs_of(PARSER).keys()) - set(listed) == set()

    complete = 'COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_fleetui; echo "${{COMPREPLY[@]}}"'
    for words, found in (
        ("fleetui wa", "wait watch_hubs"),
        ("fleetui wait web --to", "--token --token-file"),
        ("fleetui rollout pa", "pause"),
        ("fleetui simulate --semantics k", "kubefleet kubernetes"),
    ):
        answer = run("bash", "-c", f"source {script}; {complete.format(words)}")
        assert answer.stdout.split() == found.split(), answer.stderr


STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "fpath=({folder} $fpath); autoload -Uz compinit; compinit -u -d {folder}/dump",
    ),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("shell", STARTS)
def test_a_shell_completes_names_from_the_console(
    shell: str, live_server: LiveServer, tmp_path: Path
) -> None:
    """In a terminal, as a user presses the tabulator."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    joined("bravelion")
    script = tmp_path / "_fleetui"
    script.write_text(completion_of(shell))
    program = tmp_path / "fleetui"
    start = f"exec {sys.executable} -m placements.client.main"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && {start} "$@"\n')
    program.chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "TERM": "dumb",
        remote.SERVER: live_server.url,
        remote.TOKEN: api_token(person("ana", "viewer")),
    }
    command, source = STARTS[shell]

    with terminal(command, os.environ | variables) as typed:
        ready = "echo rea''dy\n"
        typed(f"{source.format(script=script, folder=tmp_path)}; {ready}", "ready")
        typed("fleetui rollout pau\t", "pause")
        typed("\x15fleetui cordon brave\t", "bravelion")


@contextmanager
def terminal(
    command: list[str], variables: Mapping[str, str]
) -> Iterator[Callable[[str, str], None]]:
    """Run a program in a terminal; the function types something and waits for what it prints."""
    main_end, end = pty.openpty()
    process = subprocess.Popen(
        command,
        stdin=end,
        stdout=end,
        stderr=end,
        env=variables,
        start_new_session=True,
    )

    def typed(text: str, wanted: str) -> None:
        os.write(main_end, text.encode())
        found = ""
        while wanted not in found:
            readable, _, _ = select.select([main_end], [], [], 60)
            assert readable, f"{wanted!r} is not in {found!r}"
            found += os.read(main_end, 4096).decode(errors="replace")

    try:
        yield typed
    finally:
        process.kill()
        process.wait()
        os.close(main_end)
        os.close(end)


def test_a_renamed_command_says_its_new_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"/usr/bin/{PROGRAM}", "doctor", "-f", "web.yaml"])

    assert ended.value.code == BAD_INPUT
    assert capsys.readouterr().err == "fleetui: doctor is called checks now\n"


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is needed")
def test_kubectl_finds_the_installed_plugin(installed: Path, tmp_path: Path) -> None:
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"

    shown = run("kubectl", "fleetui", "--help", PATH=path, HOME=str(tmp_path))
    version = run("kubectl", "fleetui", "version", PATH=path, HOME=str(tmp_path))

    assert shown.stdout.startswith("usage: kubectl fleetui "), shown.stderr
    assert version.stdout == f"fleetui {__version__}\n"


@pytest.mark.nightly
def test_an_installed_console_runs_outside_of_the_source_tree(
    installed: Path, tmp_path: Path
) -> None:
    simulated = run(
        installed / "fleetui", "simulate", f"--clusters={NINE}", f"--placement={WEB}"
    )
    assert simulated.returncode == 0, simulated.stderr
    assert list(tmp_path.iterdir()) == []

    start = "import sys, runpy; sys.path[0] = '/'; sys.argv = ['fleetui', 'up', '--port', '0']"
    program = f"{start}; import os; os.execv({str(installed / 'fleetui')!r}, sys.argv)"
    variables = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "PYTHONPATH": ""}
    with watching("-c", program, **variables) as up:
        address = up.wait_for(r"FleetUI: (http://\S+/)")[1]
        page = run("curl", "-sf", f"{address}login/").stdout
        style = page.partition('href="/')[2].partition('"')[0]
        assert "Log in" in page
        assert run("curl", "-sf", f"{address}{style}").stdout
        up.process.terminate()
        up.process.wait(timeout=60)

    data = tmp_path / ".local" / "share" / "fleetui"
    assert data.stat().st_mode & 0o777 == 0o700
    assert (data / "fleetui.sqlite3").exists()


# --- GitHub and pre-commit ----------------------------------------------------------------------


def document(name: str) -> Any:
    return load_documents((ROOT / name).read_bytes())[0].data


@pytest.mark.nightly
def test_the_action_simulates_and_passes_on_the_result(tmp_path: Path) -> None:
    action = document("action.yml")
    install, simulate = action["runs"]["steps"]
    program = tmp_path / "fleetui" / "bin" / "fleetui"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m fleetui "$@"\n'
    )
    program.chmod(0o755)
    inputs = {name: one.get("default", "") for name, one in action["inputs"].items()}
    files = {"clusters": str(NINE), "placement": str(WEB)}

    def step(**given: str) -> tuple[int, str, str]:
        output = tmp_path / "output"
        output.write_text("")
        values = inputs | files | given
        names = {
            name: value.removeprefix("${{ inputs.").removesuffix(" }}")
            for name, value in simulate["env"].items()
        }
        variables = {name: values[source] for name, source in names.items()}
        folders = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(output)}
        found = run(
            "bash",
            "-e",
            "-o",
            "pipefail",
            "-c",
            simulate["run"],
            **variables,
            **folders,
        )
        return found.returncode, found.stdout, output.read_text()

    assert 'cd "$GITHUB_ACTION_PATH"' in install["run"]
    assert "--require-hashes" in install["run"]
    assert not any(
        "${{" in one["run"] for one in (install, simulate)
    )  # an input would be run as code
    status, shown, outputs = step()
    assert (status, outputs.splitlines()[1]) == (0, "fulfilled=true")
    assert shown == (tmp_path / "fleetui-simulate.table").read_text()
    few = tmp_path / "few.yaml"
    few.write_text("- {name: bravelion, labels: {region: east}}\n")
    assert step(clusters=str(few))[0] == 1
    status, _, outputs = step(clusters=str(few), **{"allow-not-fulfilled": "true"})
    assert (status, outputs.splitlines()[1]) == (0, "fulfilled=false")
    assert step(clusters="/missing", **{"allow-not-fulfilled": "true"})[0] == 2


@pytest.fixture
def revisions(tmp_path: Path) -> tuple[Path, str]:
    """Return a repository whose head lets a placement leave a cluster, and the revision before."""
    folder = tmp_path / "repository"
    folder.mkdir()

    def git(*arguments: str) -> str:
        user = ("-c", "user.name=ana", "-c", "user.email=ana@fleet.invalid")
        done = subprocess.run(
            ["git", *user, *arguments],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    members = [
        member_document(one["name"], one["labels"])
        for one in load_documents(NINE.read_bytes())[0].data
    ]
    (folder / "fleet.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": members})
    )
    (folder / "web.yaml").write_text(WEB.read_text())
    for name, text in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git("add", "-A")
    git("commit", "-qm", "base")
    base = git("rev-parse", "HEAD")
    git("branch", "upstream")
    (folder / "web.yaml").write_text(
        WEB.read_text().replace("numberOfClusters: 5", "numberOfClusters: 4")
    )
    (folder / ".fleetui.yaml").write_text("gates: {max-leaves: 0}\n")
    git("add", "-A")
    git("commit", "-qm", "head")
    git("branch", "-q", "--set-upstream-to=upstream")
    return folder, base


@contextmanager
def github(comments: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Serve the comments of a pull request as GitHub does; yield the address and the requests."""
    calls = []

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            assert self.headers["Authorization"] == "Bearer secret"
            path, _, query = self.path.partition("?")
            calls.append(f"{self.command} {path}")
            sent = json.loads(
                self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null"
            )
            found: Any = None
            if self.command == "GET":
                at = (int(query.rpartition("page=")[2]) - 1) * 100
                found = comments[at : at + 100]
            elif self.command == "POST":
                found = {"id": 1000 + len(comments), **sent}
                comments.append(found)
            else:
                found = next(
                    comment
                    for comment in comments
                    if str(comment["id"]) == path.rpartition("/")[2]
                )
                found |= sent
            body = json.dumps(found).encode()
            self.send_response(
                200 if path.startswith("/repos/ana/fleet/issues/") else 403
            )
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = respond  # noqa: N815 -- names of http.server

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", calls
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def program_in(folder: Path) -> Path:
    """Write the programs that the step before installs; return their folder."""
    programs = folder / "fleetui" / "bin"
    programs.mkdir(parents=True)
    for name, command in (("fleetui", "-m fleetui"), ("python", "")):
        path = programs / name
        path.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {command} "$@"\n'
        )
        path.chmod(0o755)
    return programs


@pytest.mark.nightly
def test_the_action_keeps_one_comment_and_passes_on_the_gates(
    revisions: tuple[Path, str], tmp_path: Path
) -> None:
    folder, base = revisions
    action = document("deploy/github-diff/action.yml")
    install, step = action["runs"]["steps"]
    assert 'cd "$GITHUB_ACTION_PATH/../.."' in install["run"]
    assert "--require-hashes" in install["run"]
    assert not any("${{" in one["run"] for one in (install, step))
    program_in(tmp_path)
    output = tmp_path / "output"
    comments: list[dict[str, Any]] = [{"id": at, "body": None} for at in range(150)]
    with github(comments) as (address, calls):

        def compare(**given: str) -> tuple[int, str]:
            known = {
                "BASE": base,
                "HEAD": "HEAD",
                "FLEET": "",
                "COMMENT": "true",
                "TOKEN": "secret",
            }
            known |= {"PATHS": "", "RENDER": "auto", "REQUIRE": "false"}
            known |= {
                "NUMBER": "7",
                "FLEETUI_IMPACT_APPROVED": "false",
                "FLEETUI_TOKEN": "",
            }
            assert known.keys() == step["env"].keys()
            runner = {
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_OUTPUT": str(output),
                "GITHUB_API_URL": address,
            }
            runner |= {"GITHUB_REPOSITORY": "ana/fleet", "HOME": str(folder)}
            runner |= {"GITHUB_ACTION_PATH": str(ROOT / "deploy" / "github-diff")}
            script = ("bash", "-e", "-o", "pipefail", "-c", step["run"])
            found = run(*script, **known | runner | given)
            return found.returncode, found.stdout + found.stderr

        status, shown = compare()
        assert status == 1, shown
        assert output.read_text() == f"result={tmp_path / 'fleetui-impact.md'}\n"
        assert calls == ["GET /repos/ana/fleet/issues/7/comments"] * 2 + [
            "POST /repos/ana/fleet/issues/7/comments"
        ]
        assert comments[-1]["body"] == (tmp_path / "fleetui-impact.md").read_text()
        assert comments[-1]["body"].startswith(
            "<!-- fleetui-impact -->\n**Placement impact: 1 of 1"
        )
        assert "`max-leaves`" in comments[-1]["body"]

        approved, _ = compare(FLEETUI_IMPACT_APPROVED="true")
        assert approved == 0
        assert len(comments) == 151, "the comment is updated"
        assert calls[-1] == "PATCH /repos/ana/fleet/issues/comments/1150"
        assert "were approved" in comments[-1]["body"]

        status, shown = compare(GITHUB_REPOSITORY="of/fork")
        assert (status, "::warning::The comment was not written" in shown) == (1, True)
        assert compare(PATHS="web.yaml\nfleet.json\n", REQUIRE="true")[0] == 1
        status, shown = compare(PATHS="nowhere")
        assert (status, "--path nowhere: no file there" in shown) == (2, True)
        before = len(calls)
        assert compare(COMMENT="false")[0] == 1
        assert compare(NUMBER="")[0] == 1
        status, shown = compare(BASE="nowhere")
        assert (status, "nowhere" in shown) == (2, True)
        assert len(calls) == before


@pytest.mark.nightly
def test_the_gitlab_template_and_the_hook_pass_on_the_gates(
    revisions: tuple[Path, str], tmp_path: Path
) -> None:
    folder, base = revisions
    programs = program_in(tmp_path)
    variables = {"HOME": str(folder), "PATH": f"{programs}:{os.environ['PATH']}"}
    job = document("deploy/gitlab/impact.yml")["placement-impact"]
    script = "\n".join(job["script"])  # a runner executes the lines in one shell
    given = {name: str(value) for name, value in job["variables"].items()}
    given |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, **variables}
    done = run("bash", "-e", "-c", script, **given)
    assert done.returncode == 1, done.stderr
    assert (
        run(
            "bash", "-e", "-c", script, **(given | {"IMPACT_PATH": "nowhere"})
        ).returncode
        == 2
    )
    done = run("bash", "-e", "-c", script, **given)
    (report,) = job["artifacts"]["paths"]
    assert "Placement impact" in (folder / report).read_text()
    assert "Placement impact" in done.stdout

    hooks = {one["id"]: one["entry"] for one in document(".pre-commit-hooks.yaml")}
    pushed = run(*hooks["fleetui-diff"].split(), **variables)
    assert (pushed.returncode, "Placement impact" in pushed.stdout) == (1, True), (
        pushed.stderr
    )
    for names in (["web.yaml"], [".github/workflows/impact.yml"], list(FOREIGN)):
        checked = run(*hooks["fleetui-checks"].split(), *names, **variables)
        assert checked.returncode == 0, checked.stderr


def test_the_hook_is_a_command_that_exists() -> None:
    hooks = document(".pre-commit-hooks.yaml")

    assert len(hooks) == 3
    for hook in hooks:
        assert hook["entry"].split()[0] == "fleetui"
        assert hook["entry"].split()[1] in get_commands() | verbs_of(PARSER)
        assert (hook["language"], hook.get("pass_filenames", True)) == (
            "python",
            hook["id"] == "fleetui-checks",
        )


def test_the_environment_of_the_source_tree_has_the_command() -> None:
    """Run what `make` writes into a fresh environment, in a copy of its folder."""
    recipe = subprocess.run(
        ["make", "--always-make", "--dry-run", ".venv/.made-from-lock"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    [line] = [line for line in recipe.splitlines() if line.startswith("printf")]
    script = run("sh", "-c", line.partition(" > ")[0]).stdout

    shown = run("sh", "-c", script.partition("\n")[2], "fleetui", "version")

    assert script.startswith("#!/bin/sh\n")
    assert " > .venv/bin/fleetui && chmod +x .venv/bin/fleetui" in line
    assert (shown.returncode, shown.stdout) == (0, f"fleetui {__version__}\n")
