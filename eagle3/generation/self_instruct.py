"""Conversations that the target writes on its own, questions too.

Given its chat prefix alone, up to where a user would begin, a target that was trained on
conversations writes what users ask (Magpie, arXiv:2406.08464).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from eagle3.errors import EngineError
from eagle3.generation.dialogue import Dialogue, DialogueRules, Finished
from eagle3.generation.faults import normalise
from eagle3.generation.hold import Row

_LEAST_ATTEMPTS = 200
_ATTEMPTS_A_CONVERSATION = 20
# A short conversation: what one is taken for before any is known.
_TOKENS_AT_FIRST = 100
# What is done is told in millionths: conversations and tokens are both counted.
_WHOLE = 1_000_000


class InventedRows:
    """Dialogues of `turns` turns without end, until `conversations` or `tokens` of them are taken.

    The dialogues are told apart by their number. A question that was asked before, but for case
    and punctuation, is not taken again: memory holds about 100 bytes for each.
    """

    name = "self-instruct"
    what = "writing"
    size = _WHOLE
    limit = None

    def __init__(
        self, conversations: int, tokens: int | None, turns: int, rules: DialogueRules
    ) -> None:
        self._wanted = conversations
        self._tokens_wanted = tokens
        self._turns = turns
        self._rules = rules
        self._asked: set[bytes] = set()
        self._useful = self._tokens = 0
        self.taken = 0

    def rows(self) -> Iterator[Row]:
        for number in count(1):
            key = f"attempt {number}"
            yield Row(key, self.name, "", Dialogue(key, self._rules, [], [], invented=self._turns))

    def take(self, finished: Finished | None) -> Finished:
        """Counts `finished`, which comes back without samples if its question is a repeated one.

        Raises EngineError where nearly nothing can be used.
        """
        assert finished is not None
        self.taken += 1
        if finished.samples:
            question = normalise(finished.question).encode()
            key = hashlib.blake2b(question, digest_size=16).digest()
            if key in self._asked:
                finished = replace(finished, samples=(), reason="question: asked before")
            else:
                self._asked.add(key)
                self._useful += 1
                self._tokens += sum(len(sample.input_ids) for sample in finished.samples)
        if self.taken > _LEAST_ATTEMPTS + _ATTEMPTS_A_CONVERSATION * self._useful:
            raise EngineError(
                f"of {self.taken:,} conversations that the target wrote only {self._useful:,} "
                f"can be used (the last one: {finished.reason}); was it trained to chat?"
            )
        return finished

    @property
    def rows_read(self) -> int:
        """Dialogues that came back; what was begun besides counts for nothing."""
        return self.taken

    @property
    def is_complete(self) -> bool:
        return self._share >= 1

    @property
    def done(self) -> int:
        return round(_WHOLE * self._share)

    @property
    def _share(self) -> float:
        share = self._useful / self._wanted
        if self._tokens_wanted is not None:
            share = max(share, self._tokens / self._tokens_wanted)
        return min(1.0, share)

    def ahead(self, most: int) -> int:
        """How many attempts to have on the way: at most `most`, and few where few are missing."""
        missing = float(self._wanted - self._useful)
        if self._tokens_wanted is not None:
            each = self._tokens / self._useful if self._useful else _TOKENS_AT_FIRST
            missing = min(missing, (self._tokens_wanted - self._tokens) / each)
        return min(most, int(1.5 * missing) + 4)
