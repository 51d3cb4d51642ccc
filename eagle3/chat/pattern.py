"""The tokens of all plain conversations in which the same roles speak in turn.

Where a template never looks at contents (`outline`), and an answer and what stands around it can be
told apart beside special tokens (`segments`), the tokens of everything the template writes are
known beforehand, the supervised ones among them. What is left of a conversation is the encoding of
its contents, each with the text that it may merge with.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation, Message, check_order
from eagle3.chat.outline import Hole, find_outline
from eagle3.chat.segments import Segmenter
from eagle3.errors import InputError

Parts = tuple[str | Hole, ...]

# Whoever writes about thinking may write what a template's rules for reasoning apply to.
_THINK_MARK = "think>"
# Orders of roles that are kept; data has few.
_MOST_PATTERNS = 1024


@dataclass(frozen=True)
class _Fixed:
    """Tokens that every conversation of the pattern has, with their mask."""

    ids: list[int]
    mask: bytes


@dataclass(frozen=True)
class _Filled:
    """Text around contents. Of an answer, `header` are the ids before it, else None."""

    parts: Parts
    header: list[int] | None

    def text(self, contents: Sequence[str]) -> str:
        # A list: joining a generator takes twice as long.
        return "".join(
            [
                part if isinstance(part, str) else part.filled(contents[part.turn])
                for part in self.parts
            ]
        )


@dataclass(frozen=True)
class Pattern:
    """Says what to encode, and puts the tokens together."""

    steps: tuple[_Fixed | _Filled, ...]
    stops: frozenset[int]

    def texts(self, contents: Sequence[str]) -> list[str]:
        """What is to be encoded of a conversation that says `contents`, without special tokens."""
        return [step.text(contents) for step in self.steps if isinstance(step, _Filled)]

    def join(self, encoded: Iterator[list[int]], input_ids: list[int], mask: bytearray) -> bool:
        """Adds the sample of the encoded `texts`, all taken from `encoded`, to ids and mask.

        False, and nothing added, where a header merged with its answer, an answer holds an
        end-of-turn token, or all is supervised: that is for whoever renders the conversation to
        judge.
        """
        begin = len(input_ids)
        is_known = True
        for step in self.steps:
            if isinstance(step, _Fixed):
                input_ids += step.ids
                mask += step.mask
                continue
            added = next(encoded)
            input_ids += added
            if step.header is None:
                mask += bytes(len(added))
                continue
            begun = len(step.header)
            mask += bytes(begun) + b"\1" * (len(added) - begun)
            if added[:begun] != step.header:
                is_known = False
            answer = added[begun:]
            # One after the other, of which there are few: faster than to ask a set of each token.
            for stop in self.stops:
                if stop in answer:
                    is_known = False
        if is_known and mask.find(0, begin) >= 0:
            return True
        del input_ids[begin:], mask[begin:]
        return False


class Patterns:
    """The patterns of `template`, found as conversations need them."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._segmenter = Segmenter(template)
        self._known: dict[tuple[str, ...], tuple[Pattern, frozenset[str]] | None] = {}

    def find(self, conversation: Conversation) -> Pattern | None:
        """The pattern that gives the one sample of `conversation`, or None."""
        messages = conversation.messages
        if not conversation.is_plain or any(message.name for message in messages):
            return None
        roles = tuple([message.role for message in messages])
        return self.find_plain(roles, [message.content for message in messages])

    def find_plain(self, roles: tuple[str, ...], contents: Sequence[str]) -> Pattern | None:
        """The pattern that gives the one sample of a plain conversation, or None.

        None, too, where no target would be asked in this order of roles.
        """
        if roles not in self._known:
            if len(self._known) >= _MOST_PATTERNS:
                self._known.clear()
            self._known[roles] = self._make(roles)
        found = self._known[roles]
        if found is None:
            return None
        pattern, absent = found
        for content in contents:
            if not content or content.isspace():
                return None
            for text in absent:
                if text in content:
                    return None
        return pattern

    def _make(self, roles: tuple[str, ...]) -> tuple[Pattern, frozenset[str]] | None:
        template = self._template
        if not template.tokenizer.is_fast or template.marks_generation:
            return None
        if any(template.closings.values()) or not _is_in_order(roles):
            return None
        absent = {_THINK_MARK}
        steps: list[_Fixed | _Filled] = []
        before: Parts = ()
        for turn, role in enumerate(roles):
            if role != "assistant":
                continue
            prompt = find_outline(template, roles[:turn], open_answer=True)
            answered = find_outline(template, roles[: turn + 1])
            if prompt is None or answered is None:
                return None
            added = self._steps(turn, before, prompt.parts, answered.parts)
            if not added:
                return None
            steps += added
            absent |= prompt.absent | answered.absent
            before = answered.parts
        if not steps:
            return None
        return Pattern(tuple(_merged(steps)), template.end_of_turn_ids), frozenset(absent)

    def _steps(
        self, turn: int, before: Parts, prompt: Parts, answered: Parts
    ) -> list[_Fixed | _Filled]:
        """What comes behind `before`: the question and the answer `turn`; empty if not known."""
        asked, answer = _rest(prompt, before), _rest(answered, prompt)
        if not asked or not answer or not isinstance(asked[-1], str):
            return []
        hole, *ending = answer
        if not isinstance(hole, Hole) or hole.turn != turn:
            return []
        header = self._segmenter.header(asked[-1])
        given = _filled((*asked[:-1], asked[-1].removesuffix(header)))
        said = _filled((header, hole, *ending))
        for left, right in ((before, given or said), (given, said)):
            if left and not self._is_clean_between(left, right):
                return []
        asking = [self._step(chunk) for chunk in self._cut(given)]
        answering = self._answer(self._cut(said), hole)
        return asking + answering if answering else []

    def _answer(self, chunks: list[Parts], hole: Hole) -> list[_Fixed | _Filled]:
        place = next(place for place, chunk in enumerate(chunks) if hole in chunk)
        if not all(isinstance(part, str) for chunk in chunks[place + 1 :] for part in chunk):
            return []
        first = chunks[place][0]
        header = self._template.encode(first) if isinstance(first, str) else []
        ids = [token for chunk in chunks[place + 1 :] for token in self._encode(chunk)]
        stops = [
            place for place, token in enumerate(ids) if token in self._template.end_of_turn_ids
        ]
        if len(stops) != 1:
            return []
        supervised = stops[0] + 1
        return [
            *map(self._step, chunks[:place]),
            _Filled(chunks[place], header),
            _Fixed(ids, b"\1" * supervised + bytes(len(ids) - supervised)),
        ]

    def _step(self, chunk: Parts) -> _Fixed | _Filled:
        if any(isinstance(part, Hole) for part in chunk):
            return _Filled(chunk, None)
        ids = self._encode(chunk)
        return _Fixed(ids, bytes(len(ids)))

    def _encode(self, chunk: Parts) -> list[int]:
        return self._template.encode("".join(part for part in chunk if isinstance(part, str)))

    def _cut(self, parts: Parts) -> list[Parts]:
        """`parts` in chunks that can be encoded one by one."""
        chunks: list[list[str | Hole]] = [[]]
        for part in parts:
            first, *others = self._segmenter.split(part) if isinstance(part, str) else [part]
            chunks[-1].append(first)
            chunks += [[other] for other in others]
        return [kept for chunk in chunks if (kept := _filled(chunk))]

    def _is_clean_between(self, left: Parts, right: Parts) -> bool:
        text, following = ("" if isinstance(part, Hole) else part for part in (left[-1], right[0]))
        return self._segmenter.is_clean(text + following, len(text))


def _is_in_order(roles: Sequence[str]) -> bool:
    try:
        check_order("", tuple(Message(role, "") for role in roles))
    except InputError:
        return False
    return True


def _filled(parts: Sequence[str | Hole]) -> Parts:
    return tuple(part for part in parts if part != "")


def _rest(longer: Parts, shorter: Parts) -> Parts | None:
    """What `longer` adds to `shorter`; None where it does not begin with it."""
    if not shorter:
        return longer
    *same, last = shorter
    if longer[: len(same)] != tuple(same) or len(longer) < len(shorter):
        return None
    meeting, added = longer[len(same)], longer[len(shorter) :]
    if meeting == last:
        return added
    if isinstance(meeting, str) and isinstance(last, str) and meeting.startswith(last):
        return (meeting[len(last) :], *added)
    return None


def _merged(steps: Sequence[_Fixed | _Filled]) -> Iterator[_Fixed | _Filled]:
    """`steps` with neighbouring fixed tokens in one; what follows the last end of turn goes."""
    waiting = _Fixed([], b"")
    for step in steps:
        if isinstance(step, _Fixed):
            waiting = _Fixed(waiting.ids + step.ids, waiting.mask + step.mask)
            continue
        if waiting.ids:
            yield waiting
        waiting = _Fixed([], b"")
        yield step
    end = waiting.mask.rindex(1) + 1
    yield _Fixed(waiting.ids[:end], waiting.mask[:end])
