"""Bodies of requests: JSON and YAML become documents that know their lines, or are refused at the door."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any

from rest_framework.exceptions import ErrorDetail
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from placements.manifests import MEBIBYTE, Document, attach_lines, items_of, load_documents
from placements.scheduling.door.json_text import load_json
from placements.scheduling.faults import Fault, Faults

LARGEST_BODY = 4 * MEBIBYTE
LARGEST_BATCH = 32 * MEBIBYTE
"""What `apply` and `simulate` take: many documents in one body."""


class BodyTooLargeError(Exception):
    """A body has more bytes than its endpoint takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body has more than {limit} bytes")


class MalformedBodyError(Exception):
    """A body cannot be read as what it says it is; `faults` say where."""

    def __init__(self, faults: Faults) -> None:
        super().__init__("the body cannot be read")
        self.faults = faults.faults


@dataclass(frozen=True, slots=True)
class Body:
    """The documents of a body, in their order."""

    documents: tuple[Document, ...]


class YamlParser(BaseParser):
    """Reads YAML, of one document or several."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,  # noqa: ARG002 -- the signature is the framework's
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Read the whole body. Raises BodyTooLargeError, MalformedBodyError."""
        limit: int = getattr((parser_context or {}).get("view"), "largest_body", LARGEST_BODY)
        content = stream.read(limit + 1)
        if len(content) > limit:
            raise BodyTooLargeError(limit)
        try:
            return Body(tuple(self.documents(content)))
        except Faults as faults:
            raise MalformedBodyError(faults) from faults

    def documents(self, content: bytes) -> list[Document]:
        """Read the documents of a body. Raises Faults."""
        return load_documents(content)


class JsonParser(YamlParser):
    """Reads JSON strictly: what only YAML allows is refused."""

    media_type = "application/json"

    def documents(self, content: bytes) -> list[Document]:
        """Read the one value of a body. Raises Faults."""
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Faults([Fault("", "not-text", "is not UTF-8 text", "UTF-8")]) from error
        return [Document(load_json(text), 1, text)]


class MergePatchParser(JsonParser):
    """Reads a JSON Merge Patch (RFC 7396)."""

    media_type = "application/merge-patch+json"


class OldYamlParser(YamlParser):
    """Reads YAML under the name it had before RFC 9512."""

    media_type = "application/x-yaml"


class TextYamlParser(YamlParser):
    """Reads YAML that is sent as text."""

    media_type = "text/yaml"


MANIFEST_PARSERS = (JsonParser, YamlParser, OldYamlParser, TextYamlParser)
PATCH_PARSERS = (MergePatchParser, *MANIFEST_PARSERS)


def documents_of(request: Request) -> list[Document]:
    """Give every document of a body, the items of a List or of an array each for itself. Raises Faults."""
    body: object = request.data
    documents = body.documents if isinstance(body, Body) else ()
    found = [item for one in documents for item in _items(one)]
    if not found:
        raise MalformedBodyError(Faults([Fault("", "required", "the body is empty", "a document")]))
    return found


def _items(document: Document) -> list[Document]:
    if not isinstance(document.data, list):
        return items_of(document)
    return [replace(document, data=one, within=(at,)) for at, one in enumerate(document.data)]


def document_of(request: Request) -> Document:
    """Give the one document of a body."""
    body: object = request.data
    documents = body.documents if isinstance(body, Body) else ()
    if len(documents) != 1:
        message = "holds several documents" if documents else "the body is empty"
        code = "too-many" if documents else "required"
        raise MalformedBodyError(Faults([Fault("", code, message, "one document")]))
    return documents[0]


class Placed:
    """A context in which faults of a document get the lines on which they stand."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def __enter__(self) -> Any:
        """Give the data of the document."""
        return self.document.data

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise the same faults with their lines."""
        if isinstance(error, Faults):
            raise Faults(attach_lines((self.document, fault) for fault in error.faults)) from error


def has_body(request: Request) -> bool:
    """Tell whether a request has a body at all."""
    return bool(request.META.get("CONTENT_LENGTH") or request.META.get("HTTP_TRANSFER_ENCODING"))


def words_of(request: Request, shape: type[Serializer[Any]]) -> dict[str, Any]:
    """Read the few words of a body. Raises Faults."""
    given = object_in(document_of(request), what="an object")
    known = shape().fields
    unknown = sorted(set(given) - set(known))
    if unknown:
        allowed = ", ".join(known)
        raise Faults(Fault(name[:80], "unknown-field", "is not known here", allowed) for name in unknown)
    reader = shape(data=given)
    if not reader.is_valid():
        raise Faults(faults_in(reader.errors))
    return dict(reader.validated_data)


def faults_in(detail: Any, path: str = "") -> Iterator[Fault]:
    """Give the errors of a serializer as faults."""
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            yield from faults_in(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(detail, list):
        for inner in detail:
            yield from faults_in(inner, path)
    elif isinstance(detail, ErrorDetail):
        yield Fault(path, detail.code or "invalid", str(detail))


def object_in(document: Document, *, what: str) -> dict[str, Any]:
    """Give the data of a document that has to be an object. Raises Faults."""
    if not isinstance(document.data, dict):
        raise Faults([Fault("", "wrong-type", f"is not {what}", "an object")])
    return document.data
