"""The base of all models that come from outside: every fault at once, in our own words.

A model says what its fields are; its `rules` say what must hold across them. Rules get the raw
mapping, so that they also speak when some field is malformed.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar

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

from placements.scheduling.door.amounts import IntOrPercent
from placements.scheduling.door.plain import LARGEST_INTEGER, plain_problems
from placements.scheduling.faults import Keys, Problem, faults_of
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics

Raw: TypeAlias = Mapping[str, Any]
Model = TypeVar("Model", bound="Parsed")

_LONGEST_SHOWN = 40
_MOST_UNKNOWN = 100
_MOST_STRAY_ITEMS = 100
_MOST_PROBLEMS = 500
_PYDANTIC_CODES = {
    "missing": "required",
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


def parse_model(
    model: type[Model],
    raw: object,
    *,
    semantics: Semantics,
    path: str,
    whole: Callable[[object], Iterable[Problem]] = lambda _: (),
) -> Model:
    """Turn raw data into a model; raise Faults with everything that is wrong with it.

    `whole` looks at the data as it is, with what the model drops, once it is known to be plain.
    """
    problems = plain_problems(raw)
    if problems:
        raise faults_of(problems, None, path=path)
    problems = list(whole(raw))
    try:
        found = model.model_validate(raw, context={"semantics": semantics})
    except ValidationError as error:
        raise faults_of([*problems, *problems_in(error)], raw, path=path) from error
    if problems:
        raise faults_of(problems, raw, path=path)
    return found


class Refusal(NamedTuple):
    """Why a well-known key is not taken here."""

    code: str
    message: str


class Parsed(BaseModel):
    """A frozen value read from a document: strict types, camelCase keys, unknown keys refused.

    A null field counts as absent, as in Kubernetes.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, validate_by_name=True
    )
    noun: ClassVar[str] = "object"
    left_aside: ClassVar[frozenset[str]] = frozenset()
    """Keys that are accepted and dropped."""
    takes_unknown: ClassVar[bool] = False
    """Whether unknown keys are dropped too, as fits what a newer hub may have written."""
    refused: ClassVar[Mapping[str, Refusal]] = {}
    """Keys that exist elsewhere but not here, each with its own code and words."""

    @classmethod
    def rules(cls, raw: Raw) -> Iterable[Problem]:  # noqa: ARG003 -- what overrides it reads the argument
        """Find what is wrong across fields; `raw` holds known, non-null fields of any type."""
        return ()

    @classmethod
    def rules_under(cls, raw: Raw, semantics: Semantics) -> Iterable[Problem]:  # noqa: ARG003 -- see rules
        """Find the same where it depends on the semantics; override this one or `rules`."""
        return cls.rules(raw)

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """Fill in defaults that depend on other fields."""
        return raw

    def to_plain(self) -> dict[str, Any]:
        """Give the JSON form: defaults filled in, absent things left out, order kept."""
        plain: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if field.is_required() or not is_absent(value):
                plain[field.alias or name] = to_plain(value)
        return plain

    @model_validator(mode="wrap")
    @classmethod
    def _find_everything(
        cls, raw: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        return cls._parse(raw, handler, info.context)

    @classmethod
    def _parse(
        cls, raw: object, handler: ModelWrapValidatorHandler[Self], context: Mapping[str, Any] | None
    ) -> Self:
        if isinstance(raw, cls):
            return raw
        if isinstance(raw, list):
            raise failure(_stray_list_problems(raw, lambda item: cls._parse(item, handler, context)))
        if not isinstance(raw, Mapping):
            raise failure([wrong_type(raw, "an object")])
        fields = raw if context else cls._by_alias(raw)
        semantics = context["semantics"] if context else DEFAULT_SEMANTICS
        known = {key: fields[key] for key in cls._keys() if fields.get(key) is not None}
        problems = [*cls._unknown_keys(fields), *cls.rules_under(known, semantics)]
        try:
            value = handler(cls.complete(known))
        except ValidationError as error:
            problems += problems_in(error)
        if problems:
            raise failure(problems)
        return value

    @classmethod
    def _keys(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items()]

    @classmethod
    def _by_alias(cls, raw: Mapping[Any, Any]) -> dict[Any, Any]:
        """Translate attribute names, which only Python code uses: doors always give a context."""
        aliases = dict(zip(cls.model_fields, cls._keys(), strict=True))
        return {aliases.get(key, key): value for key, value in raw.items()}

    @classmethod
    def _unknown_keys(cls, raw: Mapping[Any, Any]) -> Iterator[Problem]:
        if cls.takes_unknown:
            return
        known = cls._keys()
        for key in cls.refused:
            if raw.get(key) is not None:
                yield Problem((key,), cls.refused[key].code, cls.refused[key].message)
        accepted = {*known, *cls.left_aside, *cls.refused}
        unknown = [key for key in raw if key not in accepted]
        for key in unknown[:_MOST_UNKNOWN]:
            similar = difflib.get_close_matches(key[:_LONGEST_SHOWN], known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            yield Problem((key,), "unknown-field", f"is not a field of a {cls.noun}{hint}", ", ".join(known))
        if len(unknown) > _MOST_UNKNOWN:
            yield Problem((), "unknown-field", f"has {len(unknown)} unknown fields", ", ".join(known))


def _stray_list_problems(raw: list[Any], parse: Callable[[object], object]) -> Iterator[Problem]:
    """Refuse a list in the place of one object, and look into its items all the same."""
    yield Problem((), "wrong-type", "is a list; only one object goes here, without a dash", "one object")
    for index, item in enumerate(raw[:_MOST_STRAY_ITEMS]):
        try:
            parse(item)
        except ValidationError as error:
            yield from (problem.under(index) for problem in problems_in(error))


def failure(problems: Iterable[Problem]) -> ValidationError:
    """Wrap problems so that pydantic carries them outward and completes their places; cut a flood."""
    found = list(problems)
    if len(found) > _MOST_PROBLEMS:
        message = f"has more faults than are listed; these are the first {_MOST_PROBLEMS}"
        found = [*found[:_MOST_PROBLEMS], Problem((), "too-many-faults", message)]
    details = []
    for problem in found:
        words = {"message": problem.message, "allowed": problem.allowed}
        kind = PydanticCustomError(problem.code, "{message}", words)
        details.append(InitErrorDetails(type=kind, loc=problem.keys, input=None))
    return ValidationError.from_exception_data("document", details)


def problems_in(error: ValidationError) -> list[Problem]:
    """Translate pydantic's errors into problems with our codes and words."""
    found = []
    for line in error.errors(include_url=False, include_input=False):
        words = line.get("ctx", {})
        if "message" in words:
            found.append(Problem(line["loc"], line["type"], words["message"], words["allowed"]))
        else:
            found.append(_translate(line["type"], line["loc"], line["msg"]))
    return found


def _translate(kind: str, keys: Keys, message: str) -> Problem:
    if kind == "missing":
        return Problem(keys, "required", "is missing")
    code = "wrong-type" if kind.endswith("_type") else _PYDANTIC_CODES.get(kind, "bad-format")
    return Problem(keys, code, message[:1].lower() + message[1:])


def is_absent(value: object) -> bool:
    """Tell whether an optional field holds nothing."""
    return value is None or (isinstance(value, (str, tuple, Mapping)) and not value)


def to_plain(value: Any) -> Any:
    """Give the JSON form of a field's value."""
    if isinstance(value, (Parsed, IntOrPercent)):
        return value.to_plain()
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.value if isinstance(value, StrEnum) else value


def shown(value: object) -> str:
    """Write a raw value the way a message quotes it."""
    if isinstance(value, str):
        short = value if len(value) <= _LONGEST_SHOWN else value[: _LONGEST_SHOWN - 1] + "…"
        return json.dumps(short, ensure_ascii=False)
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return "a huge number"
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return "an object" if isinstance(value, Mapping) else "a list"


def wrong_type(value: object, expected: str) -> Problem:
    """Say that a value is not of the expected sort, and how to write it if it only lacks quotes."""
    hint = ""
    if expected == "text" and isinstance(value, (bool, int, float)):
        hint = "; put it in quotes as it is written"
    return Problem(
        (), "wrong-type", f"{shown(value)} is not {expected.partition(' from ')[0]}{hint}", expected
    )


def mapping_at(raw: object, *keys: str) -> Raw:
    """Give the object at these keys of raw data, or an empty one if there is none."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, Mapping) else {}


def items_at(raw: Raw, key: str) -> list[Any]:
    """Give the list at a key of raw data, or an empty one if there is none."""
    items = raw.get(key)
    return list(items) if isinstance(items, (list, tuple)) else []
