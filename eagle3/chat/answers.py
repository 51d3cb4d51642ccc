"""What the target was given and what it generated, turn by turn, as text.

For each assistant turn the conversation is rendered twice: up to where the answer would begin,
and with the answer. What the second adds is what the target generated. Nothing is searched for in
rendered text, so that what a user quotes is never taken for an answer.

Templates that drop reasoning or rewrite earlier turns need more. The rules, in their order:

1. An answer with reasoning is asked for with thinking on, one without with thinking off, as a
   request would do. An empty thinking block before an answer belongs to the prompt: no target
   that was told not to think generates it.
2. Reasoning is handed to the template in fields (`reasoning_content`, `thinking`).
3. If it does not appear but the prompt opens a block of thinking (DeepSeek-R1, Kimi-K2.5), the
   answer is the reasoning, the end of the block, and the rest as rendered.
4. If it does not appear and no block is open, it is handed over inside the text, between the
   `<think>` marks, where the template knows those.
5. If the answer makes the template rewrite what stood before it (gpt-oss drops the thoughts before
   a tool call, Mistral moves the system prompt), the prompt stays as it was served, and the answer
   is taken from a conversation of the last question and this answer alone.
6. Otherwise the conversation is refused: the target does not answer in this form.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import replace
from dataclasses import dataclass

from eagle3.chat.at_once import read_answers
from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation, Message
from eagle3.errors import InputError

# How a prompt opens a block of thinking, and how the target then ends it; longest first.
_THINK_MARKS = (("<think>\n", "\n</think>\n\n"), ("<think>", "</think>"))


@dataclass(frozen=True)
class Answer:
    """`prompt` is what the target was given; it begins `whole`, which ends with the answer.

    What the template puts after the end-of-turn token stands in `whole`, too.
    """

    turn: int
    prompt: str
    whole: str


def render_answers(conversation: Conversation, template: ChatTemplate) -> list[Answer]:
    """One answer an assistant turn, in order.

    Raises InputError where the template fails, or does not render an answer as it was given.
    """
    if not any(template.closings.values()):
        with _refusal(conversation):
            found = read_answers(conversation, template)
        if found is not None:
            return [Answer(*answer) for answer in found]
    return [
        _render_answer(conversation, template, turn)
        for turn, message in enumerate(conversation.messages)
        if message.role == "assistant"
    ]


def _render_answer(conversation: Conversation, template: ChatTemplate, turn: int) -> Answer:
    message = conversation.messages[turn]
    prompt = _prompt(conversation, template, turn)
    answer = _found(conversation, template, turn, prompt) or _alone(
        conversation, template, turn, prompt
    )
    if answer is None:
        raise InputError(
            f"{conversation.place}: the chat template does not render turn {turn + 1} as the "
            f"target would have generated it ({_reason(message, template)})"
        )
    closing = template.closings[bool(message.tool_calls)]
    return replace(answer, whole=answer.whole + closing) if closing else answer


def _reason(message: Message, template: ChatTemplate) -> str:
    if message.tool_calls and not template.takes_tool_calls:
        return "it knows no tool calls"
    if message.reasoning:
        return "it has no place for reasoning; --reasoning drop leaves that out"
    return "it changes this turn or the ones before; give `input_ids` and `loss_mask`"


def _found(
    conversation: Conversation, template: ChatTemplate, turn: int, prompt: str
) -> Answer | None:
    return (
        _rendered(conversation, template, turn, prompt)
        or _continued(conversation, template, turn, prompt)
        or _inline(conversation, template, turn, prompt)
    )


def _rendered(
    conversation: Conversation, template: ChatTemplate, turn: int, prompt: str
) -> Answer | None:
    """The answer, if its rendering begins with `prompt` and then holds all of the turn."""
    message = conversation.messages[turn]
    whole = _text(conversation, template, turn + 1, thinking=bool(message.reasoning))
    start = len(prompt) if whole.startswith(prompt) else None
    if template.marks_generation:
        # The template's own word narrows what was generated, or stands alone where the prompt
        # is not the beginning of the whole.
        marked = _marked_start(conversation, template, turn)
        start = max(start or 0, marked) if marked is not None else start
    if start is None or not _holds(whole[start:], message):
        return None
    if not message.reasoning:
        for begin, end in _THINK_MARKS:
            for empty in (begin + end, end if prompt.endswith(begin) else ""):
                if empty and whole.startswith(empty, start):
                    return Answer(turn, whole[: start + len(empty)], whole)
    return Answer(turn, whole[:start], whole)


def _marked_start(conversation: Conversation, template: ChatTemplate, turn: int) -> int | None:
    messages, tools = conversation.messages, conversation.tools
    thinking = bool(messages[turn].reasoning)
    before = template.generation_starts(messages[:turn], tools, thinking=thinking)
    starts = template.generation_starts(messages[: turn + 1], tools, thinking=thinking)
    return starts[len(before)] if len(starts) > len(before) else None


def _continued(
    conversation: Conversation, template: ChatTemplate, turn: int, prompt: str
) -> Answer | None:
    """The answer after a prompt that opens a block of thinking which the template then drops."""
    message = conversation.messages[turn]
    marks = next((marks for marks in _THINK_MARKS if prompt.endswith(marks[0])), None)
    if marks is None:
        return None
    begin, end = marks
    bare = replace(message, reasoning="")
    whole = _text(_with(conversation, turn, bare), template, turn + 1, thinking=False)
    closed = _prompt(_with(conversation, turn, bare), template, turn)
    stems = (stem for stem in (closed, prompt.removesuffix(begin)) if whole.startswith(stem))
    stem = next(stems, None)
    if stem is None or not _holds(whole[len(stem) :], bare):
        return None
    rest = whole[len(stem) :]
    if message.reasoning:
        return Answer(turn, prompt, prompt + message.reasoning + end + rest)
    return Answer(turn, prompt + end, prompt + end + rest)


def _inline(
    conversation: Conversation, template: ChatTemplate, turn: int, prompt: str
) -> Answer | None:
    """The answer with its reasoning inside the text."""
    message = conversation.messages[turn]
    if not message.reasoning or "<think>" not in template.source:
        return None
    content = f"<think>\n{message.reasoning}\n</think>\n\n{message.content}"
    inline = _with(conversation, turn, replace(message, reasoning="", content=content))
    whole = _text(inline, template, turn + 1, thinking=True)
    if not whole.startswith(prompt) or not _holds(whole[len(prompt) :], message):
        return None
    return Answer(turn, prompt, whole)


def _alone(
    conversation: Conversation, template: ChatTemplate, turn: int, prompt: str
) -> Answer | None:
    """The answer as rendered after the last question alone, put after the prompt as served."""
    asked = [message for message in conversation.messages[:turn] if message.role == "user"]
    short = replace(conversation, messages=(asked[-1], conversation.messages[turn]))
    # A conversation of two turns that is already all there is would only be tried again.
    if conversation.messages[:turn] == short.messages[:1]:
        return None
    opened = _prompt(short, template, 1)
    header = opened.removeprefix(_text(short, template, 1, thinking=_thinks(short, 1)))
    given = _text(conversation, template, turn, thinking=_thinks(conversation, turn))
    answer = _found(short, template, 1, opened)
    if answer is None or not answer.prompt.startswith(opened) or prompt != given + header:
        return None
    added = answer.prompt[len(opened) :]
    return Answer(turn, prompt + added, prompt + answer.whole[len(opened) :])


def _holds(answer: str, message: Message) -> bool:
    """Whether the template rendered all of `message`: what it drops, nobody would ever miss."""
    parts = [message.reasoning, message.content.strip(), *(c.name for c in message.tool_calls)]
    return all(part in answer for part in parts)


def _with(conversation: Conversation, turn: int, message: Message) -> Conversation:
    messages = conversation.messages
    return replace(conversation, messages=(*messages[:turn], message, *messages[turn + 1 :]))


def _thinks(conversation: Conversation, turn: int) -> bool:
    return bool(conversation.messages[turn].reasoning)


def _prompt(conversation: Conversation, template: ChatTemplate, turn: int) -> str:
    """What the target is given for this turn."""
    thinking = _thinks(conversation, turn)
    return _text(conversation, template, turn, open_answer=True, thinking=thinking)


def _text(
    conversation: Conversation,
    template: ChatTemplate,
    turns: int,
    *,
    open_answer: bool = False,
    thinking: bool,
) -> str:
    with _refusal(conversation):
        return template.text(
            conversation.messages[:turns],
            conversation.tools,
            open_answer=open_answer,
            thinking=thinking,
        )


@contextmanager
def _refusal(conversation: Conversation) -> Iterator[None]:
    """Makes one error of what a template raises: a program from the model's folder."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{conversation.place}: the chat template refuses this conversation ({reason})"
        ) from error
