"""What a server would give the target while a conversation goes on, as token ids.

The prompt of a later turn is the exact ids so far, what was generated among them, and the
template's ids for what comes next. Those are found by rendering the conversation with short
stand-ins for its answers, so that no generated text is ever rendered and encoded again. Where the
template rewrites earlier turns (it drops their reasoning, say), a server renders anew, and so does
this.
"""

from collections.abc import Sequence
from copy import replace
from dataclasses import dataclass
from typing import Any

from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Message
from eagle3.errors import InputError

Tools = Sequence[dict[str, Any]]

_ANSWER = "stand-in"
_THOUGHT = "stand-in thought"
_QUESTION = Message("user", "stand-in question")
_THINK_BEGIN, _THINK_END = "<think>", "</think>"
# More tokens than the mark and the white space behind it take.
_MARK_TOKENS = 12


@dataclass(frozen=True)
class Served:
    """Renders prompts of one target; `thinking` is what each request would ask of it.

    Raises InputError where the template refuses a conversation.
    """

    template: ChatTemplate
    thinking: bool

    def whole(self, messages: Sequence[Message], tools: Tools, *, question: bool) -> list[int]:
        """All ids before the answer to `messages` or, for a `question`, before the user's turn."""
        return self.template.encode(self._before(messages, tools, question=question))

    def added(
        self, messages: Sequence[Message], tools: Tools, stop_id: int, *, question: bool
    ) -> list[int] | None:
        """The part of `whole` that follows the end `stop_id` of the last answer in `messages`.

        None where the template renders the earlier turns otherwise than they were generated.
        """
        plain = [_stand_in(message) for message in messages]
        last = max(turn for turn, message in enumerate(plain) if message.role == "assistant")
        given = self._text(plain[:last], tools, open_answer=True)
        text = self._before(plain, tools, question=question)
        stop = self.template.tokenizer.convert_ids_to_tokens(stop_id)
        answer, found, rest = text.removeprefix(given).partition(stop)
        if not text.startswith(given) or not found or not _is_kept(answer, plain[last]):
            return None
        # Encoded behind the stop token, with which nothing merges.
        ids = self.template.encode(stop + rest)
        return ids[1:] if ids[:1] == [stop_id] else None

    def message(self, ids: Sequence[int], prompt: Sequence[int]) -> Message | None:
        """The answer `ids`, without its stop token, as a message; None if it is more than text."""
        if self.has_specials(ids):
            return None
        text = self.decode(ids)
        opened = self.decode(prompt[-_MARK_TOKENS:]).rstrip().endswith(_THINK_BEGIN)
        if not opened and not text.lstrip().startswith(_THINK_BEGIN):
            return Message("assistant", text.strip())
        thought, _, rest = text.partition(_THINK_END)
        thought = thought.strip().removeprefix(_THINK_BEGIN).strip()
        return Message("assistant", rest.strip(), thought)

    def has_specials(self, ids: Sequence[int]) -> bool:
        """Whether some of `ids` are special tokens, so that they are more than text."""
        return not self.template.special_ids.isdisjoint(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self.template.decode(ids)

    def _before(self, messages: Sequence[Message], tools: Tools, *, question: bool) -> str:
        if not question:
            return self._text(messages, tools, open_answer=True)
        before, found, _ = self._text([*messages, _QUESTION], tools).partition(_QUESTION.content)
        if not found:
            raise InputError("the chat template does not show what a user says")
        return before

    def _text(self, messages: Sequence[Message], tools: Tools, *, open_answer: bool = False) -> str:
        try:
            return self.template.text(
                messages, tools, open_answer=open_answer, thinking=self.thinking
            )
        # A chat template is a program from the model's folder: it raises what it likes.
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(f"the chat template refuses this conversation ({reason})") from error


def _stand_in(message: Message) -> Message:
    if message.role != "assistant":
        return message
    return replace(message, content=_ANSWER, reasoning=_THOUGHT if message.reasoning else "")


def _is_kept(rendered: str, message: Message) -> bool:
    """Whether `rendered` is the stand-in `message` as a target would have generated it."""
    if message.reasoning:
        return _THOUGHT in rendered and rendered.strip().endswith(_ANSWER)
    return rendered.strip() == _ANSWER
