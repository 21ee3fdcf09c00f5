"""The base of all manifest models: it reports every error at once.

`rules` check across fields. They get the raw mapping, so that they also work when some field is malformed.
"""

import difflib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from fleetui.apimachinery.errors import ErrorDetail, Keys, faults_of

DEEPEST = 64
MOST_VALUES = 5_000_000
LARGEST_INTEGER = 2**64
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BREAK = re.compile("[\t\n\r\u2028\u2029]")


def plain_problems(document: object) -> list[ErrorDetail]:
    """Return what keeps data from being plain; quick for valid data."""
    return [] if _is_plain(document) else _search(document)


def _is_plain(document: object) -> bool:
    """Check level by level, without keeping track of paths."""
    level, count = [document], 0
    for _ in range(DEEPEST):
        count += len(level)
        inner: list[object] = []
        for value in level:
            if type(value) is dict:
                if not all(map(is_good_text, value)):
                    return False
                inner += value.values()
            elif type(value) is list:
                inner += value
            elif not is_good_scalar(value):
                return False
        if not inner:
            return count <= MOST_VALUES
        if count > MOST_VALUES:
            return False
        level = inner
    return False


def is_good_text(value: object) -> bool:
    """Return whether a value is text that can be written as UTF-8, without control characters."""
    return type(value) is str and (
        value.isprintable() or not any(_scalar_problems((), value))
    )


def is_good_scalar(value: object) -> bool:
    """Return whether a value is text, a number of at most 64 bits, true, false or null."""
    is_usual = (
        value.isprintable()
        if type(value) is str
        else type(value) is int and -1 < value < 1 << 31
    )
    return is_usual or not any(_scalar_problems((), value))


def _search(document: object) -> list[ErrorDetail]:
    problems: list[ErrorDetail] = []
    waiting: list[tuple[Keys, object]] = [((), document)]
    left = MOST_VALUES
    while waiting:
        keys, value = waiting.pop()
        left -= 1
        if left < 0:
            message, allowed = (
                "Too large: holds too many values",
                f"at most {MOST_VALUES} values",
            )
            return [ErrorDetail((), "too-large", message, allowed)]
        if not isinstance(value, (Mapping, list, tuple)):
            problems += _scalar_problems(keys, value)
        elif len(keys) >= DEEPEST:
            allowed = f"at most {DEEPEST} levels"
            problems.append(
                ErrorDetail(keys, "too-deep", "Too deep: nested too deeply", allowed)
            )
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if isinstance(key, str) and not _has_surrogate(key):
                    waiting.append(((*keys, key), inner))
                else:
                    message = "Keys must be strings"
                    problems.append(
                        ErrorDetail(keys, "wrong-type", message, "strings as keys")
                    )
        else:
            waiting += (((*keys, index), inner) for index, inner in enumerate(value))
    return problems


def _scalar_problems(keys: Keys, value: object) -> Iterator[ErrorDetail]:
    if not isinstance(value, (str, int, float, bool, type(None))):
        yield ErrorDetail(
            keys,
            "wrong-type",
            f"Invalid value: a {type(value).__name__}",
            "text, numbers, true, false, null, lists, objects",
        )
    elif isinstance(value, str):
        if _has_surrogate(value):
            message = "Invalid value: must not contain a lone surrogate"
            yield ErrorDetail(keys, "bad-format", message, "Unicode text")
        elif control := _CONTROL.search(value):
            yield ErrorDetail(
                keys,
                "bad-format",
                f"Must not contain control characters: {control.group()!a}",
                "text without control characters",
            )
    elif isinstance(value, float):
        if not math.isfinite(value):
            message = "Invalid value: must be a finite number"
            yield ErrorDetail(keys, "out-of-range", message, "a finite number")
    elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        message = "Invalid value: number is too large"
        yield ErrorDetail(keys, "out-of-range", message, "numbers of at most 64 bits")


def is_one_line(text: str) -> bool:
    """Return whether a text fits on one line: no line breaks, no control characters."""
    return text.isprintable() or not (
        _CONTROL.search(text) or _BREAK.search(text) or _has_surrogate(text)
    )


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """A plain number, or that many percent of a total."""

    number: int
    is_percent: bool = False

    def of(self, total: int) -> int:
        """Return the number, percentages rounded up (`rules/lifecycle.md#budgets`)."""
        return -(-total * self.number // 100) if self.is_percent else self.number

    def at_least_one_of(self, total: int) -> int:
        """Return the number, percentages rounded down, and never less than 1.

        See `rules/lifecycle.md#staged-update-runs`.
        """
        number = self.number
        if self.is_percent:
            number = total * number // 100
        return max(1, number)

    def to_plain(self) -> int | str:
        return str(self) if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)


class Semantics(StrEnum):
    """The four sets of rules of `rules/scheduler.md#semantics`; `fleet` is the default."""

    FLEET = "fleet"
    KUBEFLEET = "kubefleet"
    OCM = "ocm"
    KUBERNETES = "kubernetes"


SUPPORTED_SEMANTICS = tuple(Semantics)
DEFAULT_SEMANTICS = Semantics.FLEET
"""The semantics without an annotation, and for manifests that do not depend on any."""
HUB_SEMANTICS = Semantics.KUBEFLEET
"""The semantics of live hubs, whatever their manifests say."""


def parse_semantics(raw: object) -> Semantics:
    """Return the semantics of that name, `fleet` when absent. Raise InvalidManifest for an unknown name."""
    if problem := semantics_problem(raw):
        raise faults_of([problem], raw, path="semantics")
    return DEFAULT_SEMANTICS if raw is None else Semantics(str(raw))


def semantics_problem(raw: object) -> ErrorDetail | None:
    allowed = " or ".join(SUPPORTED_SEMANTICS)
    if raw is None or raw in SUPPORTED_SEMANTICS:
        return None
    if not isinstance(raw, str):
        return ErrorDetail(
            (),
            "wrong-type",
            "Invalid value: must be the name of scheduling rules",
            allowed,
        )
    return ErrorDetail((), "not-one-of", f'Unsupported value: "{raw[:40]}"', allowed)


Raw: TypeAlias = Mapping[str, Any]
Model = TypeVar("Model", bound="ManifestModel")

_LONGEST_SHOWN = 40
_MOST_UNKNOWN = 100
_MOST_STRAY_ITEMS = 100
_MOST_PROBLEMS = 500
_PYDANTIC_CODES = {
    "extra_forbidden": "unknown-field",
    "enum": "not-one-of",
    "literal_error": "not-one-of",
    "greater_than": "out-of-range",
    "greater_than_equal": "out-of-range",
    "less_than": "out-of-range",
    "less_than_equal": "out-of-range",
    "too_long": "too-many",
    "too_short": "too-few",
    "string_too_long": "too-long",
    "string_pattern_mismatch": "bad-format",
    "value_error": "bad-format",
}


def parse_manifest(
    model: type[Model],
    raw: object,
    *,
    semantics: Semantics,
    path: str,
    whole: Callable[[object], Iterable[ErrorDetail]] = lambda _: (),
) -> Model:
    """Return the model for raw data. Raise InvalidManifest with every error.

    `whole` checks the raw data, including what the model drops, once it is known to be plain.
    """
    if problems := plain_problems(raw):
        raise faults_of(problems, None, path=path)
    problems = list(whole(raw))
    try:
        manifest = model.model_validate(raw, context={"semantics": semantics})
    except ValidationError as error:
        raise faults_of([*problems, *problems_in(error)], raw, path=path) from error
    if problems:
        raise faults_of(problems, raw, path=path)
    return manifest


class UnsupportedField(NamedTuple):
    code: str
    message: str


class ManifestModel(BaseModel):
    """A frozen value parsed from a manifest: strict types, camelCase keys, unknown keys refused.

    A null field counts as absent, as in Kubernetes.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
    )
    ignored_fields: ClassVar[frozenset[str]] = frozenset()
    """Keys that are accepted and dropped."""
    allow_unknown: ClassVar[bool] = False
    """Whether unknown keys are dropped too, as fits what a newer hub may have written."""
    refused: ClassVar[Mapping[str, UnsupportedField]] = {}
    """Keys that exist elsewhere but not here, each with its own code and words."""

    @classmethod
    def rules(cls, raw: Raw) -> Iterable[ErrorDetail]:  # noqa: ARG003 -- what overrides it reads the argument
        """Yield the errors across fields; `raw` holds known, non-null fields of any type."""
        return ()

    @classmethod
    def validate_for(cls, raw: Raw, semantics: Semantics) -> Iterable[ErrorDetail]:  # noqa: ARG003 -- see rules
        """Yield the errors that depend on the semantics; override this method or `rules`."""
        return cls.rules(raw)

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """Return `raw` with the defaults that depend on other fields."""
        return raw

    def to_plain(self) -> dict[str, Any]:
        """Return the JSON form: defaults filled in, absent values left out, order kept."""
        plain: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or not is_absent(value):
                plain[field.alias or name] = to_plain(value)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Return the value of which this is the JSON form, without validating it: trusted data only."""
        values = {
            name: read(plain[key]) for name, key, read in _readers(cls) if key in plain
        }
        return cls.model_construct(**values)  # type: ignore[return-value]  # the plugin loses Self

    @model_validator(mode="wrap")
    @classmethod
    def _find_everything(
        cls,
        raw: object,
        handler: ModelWrapValidatorHandler[Self],
        info: ValidationInfo,
    ) -> Self:
        return cls._parse(raw, handler, info.context)

    @classmethod
    def _parse(
        cls,
        raw: object,
        handler: ModelWrapValidatorHandler[Self],
        context: Mapping[str, Any] | None,
    ) -> Self:
        if isinstance(raw, cls):
            return raw
        if isinstance(raw, list):
            raise failure(cls._stray_items(raw, handler, context))
        if not isinstance(raw, Mapping):
            raise failure([wrong_type(raw, "an object")])
        fields = raw
        if not context:
            # Attribute names, which only Python code uses: parsers always pass a context.
            aliases = dict(zip(cls.model_fields, cls._keys(), strict=True))
            fields = {aliases.get(key, key): value for key, value in raw.items()}
            context = {"semantics": DEFAULT_SEMANTICS}
        semantics = context["semantics"]
        known = {key: fields[key] for key in cls._keys() if fields.get(key) is not None}
        problems = [*cls._unknown_keys(fields), *cls.validate_for(known, semantics)]
        try:
            value = handler(cls.complete(known))
        except ValidationError as error:
            problems += problems_in(error)
        if problems:
            raise failure(problems)
        return value

    @classmethod
    def _stray_items(
        cls,
        items: list[Any],
        handler: ModelWrapValidatorHandler[Self],
        context: Mapping[str, Any] | None,
    ) -> list[ErrorDetail]:
        """Return that one object is expected, and the errors of each item as if it were there alone."""
        message = "Invalid value: a list: must be one object, without a dash"
        problems = [ErrorDetail((), "wrong-type", message, "one object")]
        for index, item in enumerate(items[:_MOST_STRAY_ITEMS]):
            try:
                cls._parse(item, handler, context)
            except ValidationError as error:
                problems += (problem.under(index) for problem in problems_in(error))
        return problems

    @classmethod
    def _keys(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def _unknown_keys(cls, raw: Mapping[Any, Any]) -> Iterator[ErrorDetail]:
        if cls.allow_unknown:
            return
        known = cls._keys()
        yield from (
            ErrorDetail((key,), cls.refused[key].code, cls.refused[key].message)
            for key in cls.refused
            if raw.get(key) is not None
        )
        accepted = {*known, *cls.ignored_fields, *cls.refused}
        unknown = [key for key in raw if key not in accepted]
        for key in unknown[:_MOST_UNKNOWN]:
            similar = difflib.get_close_matches(key[:_LONGEST_SHOWN], known, n=1)
            hint = f'. Did you mean "{similar[0]}"?' if similar else ""
            message = f"Unknown field {quote_value(key)}{hint}"
            yield ErrorDetail((key,), "unknown-field", message, ", ".join(known))
        if len(unknown) > _MOST_UNKNOWN:
            message = f"Too many: {len(unknown)} unknown fields"
            yield ErrorDetail((), "unknown-field", message, ", ".join(known))


def failure(problems: Iterable[ErrorDetail]) -> ValidationError:
    """Return problems as an error that pydantic passes on with complete paths; at most 500."""
    several = list(problems)
    if len(several) > _MOST_PROBLEMS:
        several = [
            *several[:_MOST_PROBLEMS],
            ErrorDetail(
                (),
                "too-many-faults",
                f"Too many errors: these are the first {_MOST_PROBLEMS}",
            ),
        ]
    details = []
    for problem in several:
        kind = PydanticCustomError(
            problem.code,
            "{message}",
            {"message": problem.message, "allowed": problem.allowed},
        )
        details.append(InitErrorDetails(type=kind, loc=problem.keys, input=None))
    return ValidationError.from_exception_data("document", details)


def problems_in(error: ValidationError) -> list[ErrorDetail]:
    """Translate pydantic's errors into problems with our codes and words."""
    problems = []
    for line in error.errors(include_url=False, include_input=False):
        words = line.get("ctx", {})
        if "message" in words:
            problems.append(
                ErrorDetail(
                    line["loc"], line["type"], words["message"], words["allowed"]
                )
            )
        elif line["type"] == "missing":
            problems.append(ErrorDetail(line["loc"], "required", "Required value"))
        else:
            kind, message = line["type"], line["msg"]
            code = (
                "wrong-type"
                if kind.endswith("_type")
                else _PYDANTIC_CODES.get(kind, "bad-format")
            )
            message = f"Invalid value: {message[:1].lower()}{message[1:]}"
            problems.append(ErrorDetail(line["loc"], code, message))
    return problems


@cache
def _readers(model: type[ManifestModel]) -> list[tuple[str, str, Callable[[Any], Any]]]:
    fields = model.model_fields.items()
    return [
        (name, field.alias or name, _reader(field.annotation)) for name, field in fields
    ]


def _reader(annotation: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (
        Annotated,
        Union,
        UnionType,
    ):  # of a union, what is not None comes first
        return _reader(arguments[0])
    if origin is tuple:
        read = _reader(arguments[0])
        return lambda items: tuple(map(read, items))
    if isinstance(annotation, type) and issubclass(annotation, ManifestModel):
        return annotation.from_plain
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return annotation
    return lambda value: value


def is_absent(value: object) -> bool:
    return value is None or (isinstance(value, (str, tuple, Mapping)) and not value)


def to_plain(value: Any) -> Any:
    if isinstance(value, (ManifestModel, IntOrPercent)):
        return value.to_plain()
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, StrEnum):
        return value.value
    return value


def camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with their names as documents write them: `hardExcess` for `hard_excess`."""
    return {to_camel(name): value for name, value in fields.items()}


def quote_value(value: object) -> str:
    if isinstance(value, str):
        if len(value) > _LONGEST_SHOWN:
            value = value[: _LONGEST_SHOWN - 1] + "…"
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return "a huge number"
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return "an object" if isinstance(value, Mapping) else "a list"


def wrong_type(value: object, expected: str) -> ErrorDetail:
    """Return the error for a value of another type, with a hint if it only lacks quotes."""
    lacks_quotes = expected == "text" and isinstance(value, (bool, int, float))
    hint = "; put it in quotes" if lacks_quotes else ""
    return ErrorDetail(
        (),
        "wrong-type",
        f"Invalid value: {quote_value(value)}: must be {expected.partition(' from ')[0]}{hint}",
        expected,
    )


def conflict(key: str, problem: str, allowed: str = "") -> ErrorDetail:
    return ErrorDetail((key,), "conflict", f"Forbidden: {problem}", allowed)


def required(key: str, problem: str, allowed: str = "") -> ErrorDetail:
    return ErrorDetail((key,), "required", f"Required value: {problem}", allowed)


def duplicate_problems(
    entries: Iterable[tuple[Keys, Hashable]],
    allowed: str,
    *,
    types: type | UnionType = str | tuple,
) -> Iterator[ErrorDetail]:
    """Yield an error at the keys of each value that is there before; values of other types are skipped."""
    earlier: set[Hashable] = set()
    for keys, value in entries:
        if not isinstance(value, types):
            continue
        if value in earlier:
            quoted = "" if isinstance(value, tuple) else f": {quote_value(value)}"
            yield ErrorDetail(keys, "duplicate", f"Duplicate value{quoted}", allowed)
        earlier.add(value)


def omit_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value: a document does not have the others."""
    return {name: value for name, value in fields.items() if value}


def mapping_at(raw: object, *keys: str) -> Raw:
    """Return the object at these keys of raw data, or an empty one if there is none."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, Mapping) else {}


def items_at(raw: object, *keys: str) -> list[Any]:
    """Return the list at these keys of raw data, or an empty one if there is none."""
    items = mapping_at(raw, *keys[:-1]).get(keys[-1])
    return list(items) if isinstance(items, (list, tuple)) else []
