"""Columns over a fleet: one integer per cluster, so that a rule is evaluated for all clusters at once.

Every column is in the order of the fleet, which is by name; −1 means "absent".
"""

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetui.apimachinery.quantity import Quantity, QuantityError, parse_quantity

Bools = NDArray[np.bool_]
Codes = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ABSENT = -1
_MOST_BYTES = 128  # codes, beside that of an absent value
_FEW_NAMES = 500  # up to this number a plain sort is as fast
_NOTHING: Mapping[str | None, Quantity | None] = MappingProxyType({})


@dataclass(frozen=True)
class LabelColumn:
    """The values of one label key: sorted texts, and for each cluster the index of its own."""

    values: tuple[str, ...]
    codes: Codes

    def code_of(self, value: str) -> int:
        """Return the code of a value, or ABSENT when no cluster has it."""
        place = bisect_left(self.values, value)
        if place < len(self.values) and self.values[place] == value:
            return place
        return ABSENT

    def value_at(self, position: int) -> str | None:
        code = int(self.codes[position])
        return None if code == ABSENT else self.values[code]

    def is_any_of(self, values: Sequence[str]) -> Bools:
        wanted = np.zeros(
            len(self.values) + 1, dtype=np.bool_
        )  # the last place answers for code −1
        wanted[[code for code in map(self.code_of, values) if code != ABSENT]] = True
        return wanted.take(self.codes)

    @property
    def is_present(self) -> Bools:
        return np.not_equal(self.codes, ABSENT)

    @cached_property
    def bins(self) -> Ints:
        """Return the codes as they are counted fastest, from 1; 0 for a cluster without the key."""
        return self.codes - np.int64(ABSENT)

    def counts(self, positions: Codes) -> list[tuple[str, int]]:
        """Return the values that the clusters at these positions have, with how many of them."""
        counts = np.bincount(
            self.bins[positions], minlength=len(self.values) + 1
        ).tolist()
        return [
            (value, count)
            for value, count in zip(self.values, counts[1:], strict=True)
            if count
        ]

    @cached_property
    def digest(self) -> bytes:
        """Return a hash of the texts of all clusters: equal columns have equal codes."""
        values = json.dumps(self.values, ensure_ascii=False).encode()
        codes = self.codes.astype("<i4", copy=False).tobytes()
        return hashlib.sha256(values + codes).digest()

    def patched(self, texts: Mapping[int, str | None]) -> "LabelColumn":
        values, codes = _recoded(self.values, self.codes, texts)
        return LabelColumn(tuple(values), codes)

    def without(self, positions: Sequence[int]) -> "LabelColumn":
        values, codes = _recoded(self.values, np.delete(self.codes, positions), {})
        return LabelColumn(tuple(values), codes)


def domain_order(value: str | None) -> tuple[bool, str]:
    """Return the sort key of a topology domain on pages: by value, and no label last."""
    return value is None, value or ""


def label_column(values: Sequence[str | None], order: Ints) -> LabelColumn:
    """Return the coded values of one key, None for a cluster without it, in the given order."""
    distinct = sorted(value for value in set(values) if value is not None)
    if not distinct:
        return LabelColumn((), np.full(len(values), ABSENT, dtype=np.int32))
    code_of: dict[str | None, int] = {
        value: code for code, value in enumerate(distinct)
    }
    code_of[None] = ABSENT
    if len(distinct) > _MOST_BYTES:
        codes = np.fromiter(map(code_of.__getitem__, values), dtype=np.int32)
        return LabelColumn(tuple(distinct), codes[order])
    # Bytes take half the time. With one in front, the code of a single value is in a tuple, too.
    code_of[None] = ABSENT % 256
    in_bytes = bytes(itemgetter(None, *values)(code_of))
    codes = np.frombuffer(in_bytes, dtype=np.int8)[1:].astype(np.int32)
    return LabelColumn(tuple(distinct), codes[order])


def name_order(names: Sequence[str]) -> Ints:
    """Return the places of the names in ascending order by code point.

    Letters that all names share do not count. The rest is mostly one or two numbers of 64 bits, which are
    sorted in a fraction of the time of texts.
    """
    text = np.frombuffer(
        "\0".join([*names, ""]).encode(errors="surrogatepass"),
        dtype=np.uint8,
    )
    ends = np.flatnonzero(text == 0)
    if len(names) < _FEW_NAMES or len(ends) != len(names):
        return np.array(
            sorted(range(len(names)), key=names.__getitem__),
            dtype=np.int64,
        )

    starts = np.append(0, ends[:-1] + 1)
    words = [np.zeros(len(names), dtype=np.uint64)]
    used = 0
    for place in range(int((ends - starts).max())):
        # Behind its end a name has the letter 0, which is the smallest.
        letters = text.take(np.minimum(starts + place, ends))
        if (letters != letters[0]).any():
            used += 1
            if used > len(words) * 8:
                words.append(np.zeros_like(words[0]))
            words[-1] = words[-1] << np.uint64(8) | letters
    return np.argsort(words[0]) if len(words) == 1 else np.lexsort(words[::-1])


@dataclass(frozen=True)
class PropertyColumn:
    """One property of every cluster: exact ranks for comparing, doubles for sorting by it."""

    texts: tuple[str | None, ...]
    parsed: Mapping[str | None, Quantity | None]
    """The quantity of each text that occurs."""

    @cached_property
    def _places(self) -> Codes:
        """Return the place of each cluster's text in `parsed`."""
        place_of = {text: place for place, text in enumerate(self.parsed)}
        places = map(place_of.__getitem__, self.texts)
        return np.fromiter(places, np.int32, len(self.texts))

    @cached_property
    def is_malformed(self) -> Bools:
        malformed = [
            text is not None and quantity is None
            for text, quantity in self.parsed.items()
        ]
        return np.array(malformed, dtype=np.bool_).take(self._places)

    @cached_property
    def distinct(self) -> tuple[int, ...]:
        """Return the values that occur, in units of 10⁻⁹, ascending."""
        return tuple(
            sorted({quantity.nano for quantity in self.parsed.values() if quantity})
        )

    @cached_property
    def ranks(self) -> Codes:
        """Return each cluster's place among the distinct values, ABSENT for none or no quantity."""
        rank_of = {nano: rank for rank, nano in enumerate(self.distinct)}
        ranks = [
            ABSENT if quantity is None else rank_of[quantity.nano]
            for quantity in self.parsed.values()
        ]
        return np.array(ranks, dtype=np.int32).take(self._places)

    @cached_property
    def approximates(self) -> Floats:
        """Return each value as a double, NaN for none or no quantity."""
        values = [
            quantity and quantity.approximate for quantity in self.parsed.values()
        ]
        return np.array(values, dtype=np.float64).take(self._places)

    def patched(self, texts: Mapping[int, str | None]) -> "PropertyColumn":
        all_texts = list(self.texts)
        for position, text in texts.items():
            all_texts[position] = text
        column = property_column(all_texts, known=self.parsed)
        if "ranks" in self.__dict__:
            quantities = [column.parsed[text] for text in texts.values()]
            numbers = {
                position: quantity and quantity.nano
                for position, quantity in zip(texts, quantities, strict=True)
            }
            distinct, ranks = _recoded(self.distinct, self.ranks, numbers)
            # The values of cached properties, which need not be computed again.
            column.__dict__.update(distinct=tuple(distinct), ranks=ranks)
        return column

    def without(self, positions: Sequence[int]) -> "PropertyColumn":
        is_kept = np.ones(len(self.texts), dtype=np.bool_)
        is_kept[positions] = False
        kept = tuple(compress(self.texts, is_kept.tolist()))
        column = property_column(kept, known=self.parsed)
        distinct, ranks = _recoded(self.distinct, self.ranks[is_kept], {})
        column.__dict__.update(distinct=tuple(distinct), ranks=ranks)
        return column

    def compare(
        self, operator: str, wanted: Quantity, *, only: int | None = None
    ) -> Bools:
        """Return which clusters have a value in the relation (`Gt Ge Eq Ne Lt Le`) to a quantity.

        With `only` the result is about the cluster at that position alone.
        """
        low, high = (
            bisect_left(self.distinct, wanted.nano),
            bisect_right(self.distinct, wanted.nano),
        )
        ranks = self.ranks if only is None else self.ranks[only : only + 1]
        present = np.not_equal(ranks, ABSENT)
        answers: dict[str, Bools] = {
            "Gt": ranks >= high,
            "Ge": ranks >= low,
            "Eq": (ranks >= low) & (ranks < high),
            "Ne": (ranks < low) | (ranks >= high),
            "Lt": ranks < low,
            "Le": ranks < high,
        }
        return answers[operator] & present


def property_column(
    texts: Sequence[str | None],
    *,
    known: Mapping[str | None, Quantity | None] = _NOTHING,
) -> PropertyColumn:
    """Parse each text of one property once, unless it is known; what is no quantity is kept as malformed."""
    parsed: dict[str | None, Quantity | None] = dict.fromkeys(texts)
    for text in parsed:
        if text in known:
            parsed[text] = known[text]
        elif text is not None:
            with suppress(QuantityError):
                parsed[text] = parse_quantity(text)
    return PropertyColumn(tuple(texts), parsed)


def _recoded(
    values: Sequence[Any], codes: Codes, changes: Mapping[int, Any | None]
) -> tuple[Sequence[Any], Codes]:
    """Return sorted values and codes after changes by position; None is an absent value."""
    values, codes = list(values), codes.copy()
    for position, value in changes.items():
        place = ABSENT if value is None else bisect_left(values, value)
        if value is not None and (place == len(values) or values[place] != value):
            values.insert(place, value)
            codes[codes >= place] += 1
        codes[position] = place
    is_used = np.bincount(codes[codes != ABSENT], minlength=len(values)).astype(
        np.bool_
    )
    if is_used.all():
        return values, codes
    code_of = np.append(
        np.cumsum(is_used, dtype=np.int32) - 1, np.int32(ABSENT)
    )  # the last for code −1
    return [
        value for value, used in zip(values, is_used, strict=True) if used
    ], code_of[codes]
