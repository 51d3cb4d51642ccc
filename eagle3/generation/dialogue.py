"""One conversation while the target holds it.

The tokens of an answer and its mask are taken as they are generated. The ids so far, with what
comes next behind them, are the next prompt; where a server would render earlier turns anew, a new
sample begins.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from eagle3.chat.conversation import Message
from eagle3.chat.serving import Served
from eagle3.chat.token_sequence import TokenSequence
from eagle3.engine.generation import Generated, Sampling
from eagle3.errors import InputError
from eagle3.generation.faults import Fault, find_fault, find_odd_text

DegeneratePolicy = Literal["drop", "keep"]
_LEAST_QUESTION_CHARACTERS = 8


class Asker(Protocol):
    """What a dialogue needs of the engine."""

    def submit(
        self, key: str, prompt_T: Sequence[int], sampling: Sampling, *, max_tokens: int, seed: int
    ) -> None: ...


@dataclass(frozen=True)
class DialogueRules:
    """What holds for all dialogues of a run; lengths are in tokens."""

    served: Served
    sampling: Sampling
    max_tokens: int
    max_model_len: int
    on_degenerate: DegeneratePolicy
    seed: int
    max_question_tokens: int = 256


@dataclass(frozen=True)
class Finished:
    """What became of a dialogue.

    `reason` tells why there is no sample. `answers` counts those that the target gave, `faults`
    those of them that are degenerate; `question` is what the user said first.
    """

    samples: tuple[TokenSequence, ...]
    reason: str
    answers: int
    faults: tuple[Fault, ...]
    question: str


@dataclass
class Dialogue:
    """A conversation whose answers the target writes and, of the first `invented` turns, all.

    `messages` is an optional system prompt at first, and grows; `questions` are the users' turns to
    come. `key` names the dialogue in the engine, and with the rules' seed chooses what is said.
    """

    key: str
    rules: DialogueRules
    messages: list[Message]
    questions: list[list[Message]]
    tools: tuple[dict[str, Any], ...] = ()
    invented: int = 0
    finished: Finished | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._turns = 0
        self._faults: list[Fault] = []
        self._samples: list[TokenSequence] = []
        self._inventing = False
        self._prompt: list[int] = []
        self._ids: list[int] = []
        self._mask: list[int] = []

    def ask(self, engine: Asker) -> None:
        """Submits what the target is to write next, or ends the dialogue."""
        try:
            prompt = self._next_prompt()
        except InputError as error:
            self._end(str(error))
            return
        if prompt is None:
            self._end()
            return
        room = self.rules.max_model_len - len(prompt)
        if room < 1:
            self._end(f"no room for an answer in {self.rules.max_model_len:,} tokens")
            return
        self._prompt = prompt
        sampling, longest = self.rules.sampling, self.rules.max_tokens
        if self._inventing:
            sampling = _for_questions(sampling)
            longest = self.rules.max_question_tokens
        seed = self._seed()
        engine.submit(self.key, prompt, sampling, max_tokens=min(longest, room), seed=seed)

    def take(self, generated: Generated) -> None:
        """Takes what the target wrote; call `ask` again unless it is `finished` then."""
        if self._inventing:
            self._take_question(generated)
        else:
            self._take_answer(generated)

    def _next_prompt(self) -> list[int] | None:
        """The ids to continue; None where nobody has anything more to say."""
        if not self.messages or self.messages[-1].role != "user":
            if self.questions:
                self.messages += self.questions.pop(0)
            elif self._turns >= self.invented:
                return None
        self._inventing = not self.messages or self.messages[-1].role != "user"
        served = self.rules.served
        if self._ids:
            added = served.added(self.messages, self.tools, self._ids[-1], question=self._inventing)
            if added is not None:
                return [*self._ids, *added]
        return served.whole(self.messages, self.tools, question=self._inventing)

    def _take_question(self, generated: Generated) -> None:
        ids = generated.ids if generated.is_cut else generated.ids[:-1]
        text = self.rules.served.decode(ids).strip()
        fault = find_fault(ids, is_cut=generated.is_cut)
        odd = find_odd_text(text)
        if self.rules.served.has_specials(ids):
            odd = "special tokens"
        elif len(text) < _LEAST_QUESTION_CHARACTERS:
            odd = "too short"
        if fault or odd:
            self._end(f"question: {fault or odd}")
            return
        self.messages.append(Message("user", text))

    def _take_answer(self, generated: Generated) -> None:
        self._turns += 1
        answer = generated.ids if generated.is_cut else generated.ids[:-1]
        fault = find_fault(answer, is_cut=generated.is_cut)
        if fault:
            self._faults.append(fault)
            if self.rules.on_degenerate == "drop":
                self._end(f"answer: {fault}")
                return
        self._extend(generated.ids)
        message = self.rules.served.message(answer, self._prompt)
        if generated.is_cut or message is None:
            # A conversation does not go on after an answer that has no end, or calls a tool.
            self._end()
            return
        self.messages.append(message)

    def _extend(self, ids: Sequence[int]) -> None:
        """Makes prompt and answer part of the current sample, or begins another one."""
        if self._ids and self._prompt[: len(self._ids)] != self._ids:
            self._close_sample()
            self._mask = []
        self._mask += [0] * (len(self._prompt) - len(self._mask)) + [1] * len(ids)
        self._ids = [*self._prompt, *ids]

    def _close_sample(self) -> None:
        self._samples.append(TokenSequence(self.key, tuple(self._ids), tuple(self._mask)))

    def _end(self, reason: str = "") -> None:
        """The dialogue is over; `reason` is why, where it is no conversation's natural end."""
        if self._ids:
            self._close_sample()
        said = (message.content for message in self.messages if message.role == "user")
        self.finished = Finished(
            tuple(self._samples),
            "" if self._samples else reason,
            self._turns,
            tuple(self._faults),
            next(said, ""),
        )

    def _seed(self) -> int:
        what = "question" if self._inventing else "answer"
        text = f"eagle3 {self.rules.seed} {self.key} {self._turns} {what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def _for_questions(sampling: Sampling) -> Sampling:
    """The target's whole distribution: questions are to be as varied as it can make them."""
    return Sampling(
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.0,
        stop_ids=sampling.stop_ids,
    )
