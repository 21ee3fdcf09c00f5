"""Builds and runs the image of the Dockerfile without a container runtime, in roots made by debootstrap.

Every instruction of the Dockerfile is run as its reference says: RUN in the root of its stage, COPY
from the context or another stage, ENV, WORKDIR, USER. One that is not known here is an error. The base image
is a root with the Python of Debian. The image runs as its user, without capabilities, with a read-only root.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = "python3,python3-venv,ca-certificates"
SUITE = "bookworm"
_USUAL = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}


@dataclass
class Stage:
    """One stage of the build: its root, and what its instructions have set."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = ""
    settings: dict[str, list[str]] = field(default_factory=dict)


def instructions(dockerfile: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with its arguments; lines that are continued are joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile, flags=re.MULTILINE)
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


def bootstrap_base(folder: Path, mirror: str) -> Path:
    """Make the root that replaces the base image, or return the one that is there."""
    base = folder / "base"
    if not (base / "usr/bin/python3").exists():
        shutil.rmtree(base, ignore_errors=True)
        command = [
            "debootstrap",
            "--variant=minbase",
            f"--include={PACKAGES}",
            SUITE,
            str(base),
            mirror,
        ]
        subprocess.run(command, check=True, capture_output=True)
    return base


def build(dockerfile: Path, context: Path, base: Path, folder: Path) -> Stage:
    """Run the Dockerfile; return the last stage. Raise ValueError for an instruction not known here."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder / "none")
    for name, rest in instructions(dockerfile.read_text(encoding="utf-8")):
        if name == "FROM":
            title = rest.partition(" AS ")[2] or str(len(stages))
            stage = stages[title] = Stage(folder / title)
            shutil.rmtree(stage.root, ignore_errors=True)
            subprocess.run(
                ["cp", "-a", "--reflink=auto", str(base), str(stage.root)], check=True
            )
            _let_pip_work(stage.root)
        elif name == "COPY":
            _copy(rest, stage, stages, context)
        elif name != "ARG":
            carry_out(stage, name, rest)
    return stage


def carry_out(stage: Stage, name: str, rest: str) -> None:
    """Run an instruction that concerns its stage alone. Raise ValueError for one not known here."""
    match name:
        case "RUN":
            in_root(stage, ["sh", "-c", rest], check=True)
        case "ENV":
            stage.environment |= dict(
                word.partition("=")[::2] for word in shlex.split(rest)
            )
        case "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "USER":
            stage.user = rest
        case "CMD" | "ENTRYPOINT":
            stage.settings[name] = json.loads(rest)
        case "VOLUME" | "EXPOSE" | "HEALTHCHECK":
            stage.settings[name] = [rest]
        case _:
            raise ValueError(f"{name} is not known here")


def _let_pip_work(root: Path) -> None:
    """Copy into a root what an engine mounts into a container, and the settings of pip."""
    for path in (
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/pip.conf",
        "/etc/ssl/certs/ca-certificates.crt",
    ):
        if Path(path).exists():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _copy(rest: str, stage: Stage, stages: Mapping[str, Stage], context: Path) -> None:
    words = rest.split()
    source_root = context
    if words[0].startswith("--from="):
        source_root = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    for source in sources:
        path, goal = source_root / source.lstrip("/"), stage.root / target.lstrip("/")
        if path.is_dir():
            goal.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", f"{path}/.", str(goal)], check=True)
        else:
            goal = goal / path.name if target.endswith("/") else goal
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, goal)


def in_root(
    stage: Stage, command: list[str], *, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command of the build, as root in the root of its stage."""
    mounts = (
        f"mount -t proc proc {stage.root}/proc && mount --rbind /dev {stage.root}/dev"
    )
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    inside = _inside(stage.folder, command, {**_USUAL, **pip, **stage.environment})
    script = f"{mounts} && exec chroot {stage.root} {inside}"
    found = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    if check and found.returncode:
        raise AssertionError(
            f"{command}\n{found.stdout[-3000:]}\n{found.stderr[-3000:]}"
        )
    return found


def _inside(folder: str, command: list[str], environment: Mapping[str, str]) -> str:
    """Return the words that run a command in a folder, with this environment and no other."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    return shlex.join(
        [
            "env",
            "-i",
            *settings,
            "sh",
            "-c",
            f"cd {folder} && exec {shlex.join(command)}",
        ]
    )


@contextmanager
def running(
    image: Stage,
    arguments: list[str],
    data: Path,
    *,
    entrypoint: list[str] | None = None,
    **variables: str,
) -> Iterator[subprocess.Popen[str]]:
    """Run the image: its user, no capabilities, a read-only root, volumes at /tmp and its data folder.

    `data` is the volume. The network is that of this machine.
    """
    root, (user, group) = image.root, image.user.split(":")
    os.chown(data, int(user), int(group))
    volume = f"{root}{image.environment['FLEETUI_VAR_DIR']}"
    command = [*(entrypoint or image.settings["ENTRYPOINT"]), *arguments]
    inside = _inside(image.folder, command, {**image.environment, **variables})
    script = " && ".join(
        (
            f"mount --bind {root} {root}",
            f"mount -o remount,bind,ro {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp",
            f"mount --bind {data} {volume}",
            f"exec chroot {root} setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs "
            f"--bounding-set=-all --inh-caps=-all {inside}",
        )
    )
    process = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()  # every step replaces the one before: this is the program itself
        process.communicate(timeout=60)
