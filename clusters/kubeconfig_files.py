"""Files of the caller of a command, and a kubeconfig with the content of the files that it names."""

import base64
import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

from clusters.kubeconfig import LARGEST_KUBECONFIG
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.errors import FleetError

_FILES = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "tokenFile": "token",
}


class UnreadableFileError(FleetError):
    """A file that a command names cannot be read."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY


def read_file(path: str) -> bytes:
    """Return the content of a file, or of stdin for `-`. Raise UnreadableFileError."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror
        raise UnreadableFileError(f"{path}: cannot read file: {reason}") from error


def read_kubeconfig(path: str) -> str:
    """Return the text of a kubeconfig, or more of it than is accepted. Raise UnreadableFileError."""
    try:
        if path == "-":
            return sys.stdin.read(LARGEST_KUBECONFIG + 1)
        with Path(path).open(encoding="utf-8") as file:
            return file.read(LARGEST_KUBECONFIG + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "is not UTF-8 text")
        raise UnreadableFileError(f"{path}: {reason}") from error


def with_embedded_files(path: str) -> str:
    """Return a kubeconfig with the content of the files that it names: the caller has them already.

    Raise InvalidManifest, UnreadableFileError.
    """
    text = read_kubeconfig(path)
    documents = load_documents(text, max_bytes=LARGEST_KUBECONFIG)
    if path == "-" or len(documents) != 1:
        return text
    embedded = _embedded(documents[0].data, Path(path).parent)
    return text if embedded == documents[0].data else dump_yaml(embedded)


def _embedded(content: Any, folder: Path) -> Any:
    if isinstance(content, list):
        return [_embedded(one, folder) for one in content]
    if not isinstance(content, dict):
        return content
    embedded = {}
    for key, value in content.items():
        if key not in _FILES or not isinstance(value, str) or not value:
            embedded[key] = _embedded(value, folder)
            continue
        path = folder / value
        try:
            read = path.read_bytes()
            text = base64.b64encode(read).decode()
            if key == "tokenFile":
                text = read.decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", "is not text")
            raise UnreadableFileError(f"{path}: {reason}") from error
        embedded[_FILES[key]] = text
    return embedded
