"""Passwords that are made of the words that everybody here knows, or of few characters."""

import re
from collections.abc import Sequence
from itertools import pairwise

from django.core.exceptions import ValidationError

WORDS = (
    "fleetui",
    "kubefleet",
    "kubernetes",
    "openclustermanagement",
    "placement",
    "cluster",
    "console",
    "fleet",
    "admin",
    "administrator",
    "operator",
    "approver",
    "viewer",
    "password",
    "passwort",
    "secret",
)
MOST_WORDS = 1000
SMALLEST_REST = 6
"""Letters that a password has besides such words."""


class ContextWordsValidator:
    """Refuses a password that has few letters besides the words of this product and of an organization."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        known = sorted(
            {*WORDS, *(word.lower() for word in words)}, key=len, reverse=True
        )
        self._words = re.compile("|".join(map(re.escape, known[:MOST_WORDS])))

    def validate(self, password: str, user: object = None) -> None:  # noqa: ARG002 -- Django calls it so
        rest = self._words.sub("", password.lower())
        if len(rest) < len(password) and sum(map(str.isalpha, rest)) < SMALLEST_REST:
            raise ValidationError(self.get_help_text(), code="password_of_known_words")

    def get_help_text(self) -> str:
        return "Your password can\u2019t be words such as fleet, cluster or admin with few other letters."


FEWEST_CHARACTERS = 6
"""Different characters of a password, counted without what continues a sequence or repeats a block."""


class RepetitionValidator:
    """Refuses a password that is a few characters, a short block repeated, or a sequence such as abcdef."""

    def validate(self, password: str, user: object = None) -> None:  # noqa: ARG002 -- Django calls it so
        text = password.lower()
        block = re.fullmatch(r"(.{1,8}?)\1+.{0,8}", text, re.DOTALL)
        steps = [ord(after) - ord(before) for before, after in pairwise(text)]
        without_sequences = text[:1] + "".join(
            character
            for character, step, earlier in zip(
                text[1:], steps, [0, *steps], strict=False
            )
            if abs(step) > 1 or step != earlier
        )
        if block or len(set(without_sequences)) < FEWEST_CHARACTERS:
            raise ValidationError(
                self.get_help_text(), code="password_of_few_characters"
            )

    def get_help_text(self) -> str:
        return "Your password can\u2019t be a repeated block, a sequence, or fewer than 6 different characters."
