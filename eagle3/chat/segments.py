"""Encodes the parts of a text one by one where that gives the tokens of the whole.

A tokenizer cuts a text at its special tokens before it does anything else. So a text may be cut
beside a special token, its parts encoded alone, and the border between what was given and what was
generated is then known without offsets and without encoding anything twice.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from eagle3.chat.answers import Answer
from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Message

_PROBE_TEXTS = ("Hello", " Hello", "\nHello", "\n\n", "1", "</a>")


class Segmenter:
    """Cuts conversations beside special tokens, as far as the tokenizer of `template` allows."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._headers: dict[str, list[int]] = {}

    def encode(self, answers: Sequence[Answer]) -> tuple[list[int], list[range]] | None:
        """The ids of the last answer's text up to its end of turn, and what was generated in it.

        The text of each answer must begin the prompt of the next. None where some border is not
        beside a special token, or an answer has no single end of turn: then only encoding
        everything anew tells.
        """
        if not self._template.tokenizer.is_fast:
            return None
        text = answers[-1].whole
        headers = [self.header(answer.prompt) for answer in answers]
        cuts = [0]
        for answer, header in zip(answers, headers, strict=True):
            cuts += [len(answer.prompt) - len(header), len(answer.whole)]
        if not all(self.is_clean(text, cut) for cut in cuts[1:-1]):
            return None
        pieces = [text[begin:end] for begin, end in pairwise(cuts)]
        encoded = self._template.encode_all(pieces)
        ids: list[int] = []
        generated = []
        for turn, header in enumerate(headers):
            ids += encoded[2 * turn]
            header_ids = self._header_ids(header)
            answer_ids, begun = encoded[2 * turn + 1], len(header_ids)
            body = answer_ids[begun:]
            stops = [token for token in body if token in self._template.end_of_turn_ids]
            if len(stops) != 1 or answer_ids[:begun] != header_ids:
                return None
            start = len(ids) + begun
            generated.append(range(start, start + body.index(stops[0]) + 1))
            ids += answer_ids
        return ids[: generated[-1].stop], generated

    def header(self, prompt: str) -> str:
        """The longest of the template's ways to begin an answer with which `prompt` ends."""
        return next((header for header in self._known_headers if prompt.endswith(header)), "")

    @cached_property
    def _known_headers(self) -> tuple[str, ...]:
        asked = [Message("user", "a")]
        found = set()
        for thinking in (False, True):
            try:
                opened = self._template.text(asked, open_answer=True, thinking=thinking)
                closed = self._template.text(asked, thinking=thinking)
            # A template that refuses the probe has no known header: all is encoded anew.
            except Exception:
                continue
            header = opened.removeprefix(closed)
            found.update((header, header + "\n</think>\n\n") if opened != header else ())
        usable = (header for header in found if header.startswith(self._specials))
        return tuple(sorted(usable, key=len, reverse=True))

    def _header_ids(self, header: str) -> list[int]:
        if header not in self._headers:
            self._headers[header] = self._template.encode(header) if header else []
        return self._headers[header]

    def split(self, text: str) -> list[str]:
        """`text` in parts that can be encoded one by one: beside its special tokens, or before."""
        if not self._specials:
            return [text]
        first, *others = self._special_pattern.split(text)
        if self._goes_on_after_specials:
            return [first, *others]
        return [first, *map("".join, zip(others[::2], others[1::2], strict=True))]

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        # As a tokenizer does it: of two that begin at one place the longer.
        names = sorted(self._specials, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})")

    def is_clean(self, text: str, cut: int) -> bool:
        """Whether the parts of `text` before and behind `cut` can be encoded one by one."""
        return text.startswith(self._specials, cut) or (
            self._goes_on_after_specials and text.endswith(self._specials, 0, cut)
        )

    @cached_property
    def _specials(self) -> tuple[str, ...]:
        """The special tokens of the template that take no white space from beside them."""
        tokenizer = self._template.tokenizer
        names = (tokenizer.bos_token, tokenizer.eos_token)
        return tuple(
            token.content
            for token in tokenizer.added_tokens_decoder.values()
            if token.special
            and not (token.lstrip or token.rstrip or token.single_word or token.normalized)
            and (token.content in self._template.source or token.content in names)
        )

    @cached_property
    def _goes_on_after_specials(self) -> bool:
        """Whether text after a special token is encoded as it is at the beginning.

        SentencePiece tokenizers put a space before the first word of a text alone.
        """
        encode = self._template.encode
        return all(
            encode(special + text) == encode(special) + encode(text)
            for special in self._specials
            for text in _PROBE_TEXTS
        )
