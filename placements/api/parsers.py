"""Bodies of requests: JSON and YAML become documents that know their lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import IO, Any

from rest_framework.exceptions import ErrorDetail
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.yaml import (
    LARGEST_UPLOAD,
    Document,
    attach_lines,
    items_of,
    load_documents,
    load_json,
)
from fleetui.errors import FleetError


class BodyTooLargeError(FleetError):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    problem_type = "too-large"


class MalformedBodyError(Exception):
    """A body does not match its content type; `errors` has the places."""

    def __init__(self, errors: InvalidManifest) -> None:
        super().__init__("the body cannot be read")
        self.errors = errors.errors


@dataclass(frozen=True, slots=True)
class Body:
    documents: tuple[Document, ...]


class YamlParser(BaseParser):
    """Reads YAML, of one document or several."""

    media_type = "application/yaml"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the whole body. Raise BodyTooLargeError, MalformedBodyError."""
        limit: int = getattr(
            (parser_context or {}).get("view"), "largest_body", LARGEST_UPLOAD
        )
        content = stream.read(limit + 1)
        if len(content) > limit:
            raise BodyTooLargeError(f"the body has more than {limit} bytes")
        try:
            return Body(tuple(self.documents(content)))
        except InvalidManifest as invalid:
            raise MalformedBodyError(invalid) from invalid

    def documents(self, content: bytes) -> list[Document]:
        """Return the documents of a body. Raise InvalidManifest."""
        return load_documents(content)


class JsonParser(YamlParser):
    """Reads JSON strictly: syntax that only YAML allows is an error."""

    media_type = "application/json"

    def documents(self, content: bytes) -> list[Document]:
        """Return the one value of a body. Raise InvalidManifest."""
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidManifest.of(
                "", "not-text", "is not UTF-8 text", "UTF-8"
            ) from error
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


class FileParser(YamlParser):
    """Reads a file of any format as it is."""

    media_type = "*/*"

    def documents(self, content: bytes) -> list[Document]:
        """Return the bytes as one document: who reads them knows the formats."""
        return [Document(content, 1)]


MANIFEST_PARSERS = (JsonParser, YamlParser, OldYamlParser, TextYamlParser)
PATCH_PARSERS = (MergePatchParser, *MANIFEST_PARSERS)


def documents_of(request: Request) -> list[Document]:
    """Return all documents of a body; items of a List or of an array count each. Raise InvalidManifest."""
    body: object = request.data
    documents: list[Document] = []
    for document in body.documents if isinstance(body, Body) else ():
        if isinstance(document.data, list):
            documents += [
                replace(document, data=one, path_prefix=(at,))
                for at, one in enumerate(document.data)
            ]
        else:
            documents += items_of(document)
    if not documents:
        raise MalformedBodyError(
            InvalidManifest.of("", "required", "the body is empty", "a document")
        )
    return documents


def document_of(request: Request) -> Document:
    """Return the one document of a body. Raise MalformedBodyError."""
    body: object = request.data
    documents = body.documents if isinstance(body, Body) else ()
    if len(documents) == 1:
        return documents[0]
    code, message = "required", "the body is empty"
    if documents:
        code, message = "too-many", "contains several documents"
    raise MalformedBodyError(InvalidManifest.of("", code, message, "one document"))


@contextmanager
def read_document(request: Request) -> Iterator[Any]:
    """Yield the data of the one document of a body; errors in it get the lines where they are."""
    document = document_of(request)
    try:
        yield document.data
    except InvalidManifest as error:
        raise InvalidManifest(
            attach_lines((document, field_error) for field_error in error.errors)
        ) from error


def has_body(request: Request) -> bool:
    length = (
        request.META.get("CONTENT_LENGTH") or "0"
    )  # many clients send 0 with a POST without a body
    return length != "0" or bool(request.META.get("HTTP_TRANSFER_ENCODING"))


def parse_body(
    request: Request,
    serializer: type[Serializer[Any]],
    *,
    errors: Callable[[Any], Exception] | None = None,
) -> dict[str, Any]:
    """Return the validated fields of a small body; `errors` makes the exception of invalid ones.

    Raise InvalidManifest.
    """
    body = object_in(document_of(request).data, what="an object")
    reader = serializer(data=body)
    if unknown := sorted(set(body) - set(reader.fields)):
        allowed = ", ".join(reader.fields)
        raise InvalidManifest(
            FieldError(name[:80], "unknown-field", "is not known here", allowed)
            for name in unknown
        )
    if not reader.is_valid():
        raise (
            errors(reader.errors)
            if errors
            else InvalidManifest(errors_in(reader.errors))
        )
    return dict(reader.validated_data)


def errors_in(detail: Any, path: str = "") -> Iterator[FieldError]:
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            yield from errors_in(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(detail, list):
        for inner in detail:
            yield from errors_in(inner, path)
    elif isinstance(detail, ErrorDetail):
        yield FieldError(path, detail.code or "invalid", str(detail))


def object_in(data: object, *, what: str) -> dict[str, Any]:
    """Return the data of a document that has to be an object. Raise InvalidManifest."""
    if not isinstance(data, dict):
        raise InvalidManifest.of("", "wrong-type", f"is not {what}", "an object")
    return data


def check_objects(data: object, *, what: str) -> None:
    """Raise InvalidManifest unless the data of a document is a list of objects."""
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise InvalidManifest.of(
            "", "wrong-type", f"is not {what}", "a list of objects"
        )
