"""Looks at a tokenizer and its template, and says what will become of conversations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eagle3.chat.answers import Answer, render_answers
from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation, Message, ToolCall
from eagle3.chat.pattern import Patterns
from eagle3.chat.segments import Segmenter
from eagle3.chat.supervision import tokenize_turns
from eagle3.errors import InputError

_ONE = (Message("user", "Is it raining?"), Message("assistant", "It is."))
_TWO = (*_ONE, Message("user", "And now?"), Message("assistant", "It stopped."))
_THOUGHTFUL = tuple(
    Message(message.role, message.content, "I looked." if message.role == "assistant" else "")
    for message in _TWO
)
_CALLING = (
    _ONE[0],
    Message("assistant", "", tool_calls=(ToolCall("look", {"at": "sky"}, "call00000"),)),
    Message("tool", "grey", name="look", tool_call_id="call00000"),
    _ONE[1],
)


@dataclass(frozen=True)
class Finding:
    """`fault`: conversations cannot be prepared. `note`: they can, but not as one might think."""

    kind: Literal["ok", "note", "fault"]
    text: str


def lint_template(template: ChatTemplate) -> Iterator[Finding]:
    """Yields what is found; nothing more after a fault, since the plainest conversation has it."""
    yield _end_of_turn(template)
    turns = _turns(template)
    yield turns
    if turns.kind == "fault":
        return
    yield _take(template, (Message("system", "Be brief."), *_ONE), "system prompt")
    yield _take(template, _CALLING, "tool calls")
    yield from _reasoning(template)
    if "strftime_now" in template.source:
        yield Finding("note", "the template asks for today's date: give --date to repeat a dataset")
    yield _generation_marks(template)
    yield _begin_of_sequence(template)
    if not template.tokenizer.is_fast:
        yield Finding("note", "the tokenizer is written in Python: slower, same masks")
    elif Segmenter(template).encode(_answers(template, _ONE)) is None:
        yield Finding("note", "texts cannot be cut beside special tokens: slower, same masks")
    elif Patterns(template).find(Conversation("", _TWO)) is None:
        yield Finding(
            "note",
            "the template looks at what is said, or rewrites it: each row is rendered; slower, "
            "same masks",
        )
    else:
        yield Finding("ok", "the template writes the same whatever is said: rows are not rendered")


def _end_of_turn(template: ChatTemplate) -> Finding:
    ids = sorted(template.end_of_turn_ids)
    tokens = zip(ids, template.tokenizer.convert_ids_to_tokens(ids), strict=True)
    # Of an id that the tokenizer does not know there is no name.
    return Finding(
        "ok", f"a turn ends with {' or '.join(name or str(one) for one, name in tokens)}"
    )


def _turns(template: ChatTemplate) -> Finding:
    samples = _samples(template, _TWO)
    if isinstance(samples, str):
        return Finding("fault", f"two questions and answers: {samples}")
    if samples == 1:
        return Finding("ok", "all answers of a conversation fit one sample")
    return Finding("note", "earlier turns are rewritten when later ones follow: one sample a turn")


def _take(template: ChatTemplate, messages: tuple[Message, ...], what: str) -> Finding:
    samples = _samples(template, messages)
    if isinstance(samples, str):
        return Finding("note", f"{what}: refused ({samples})")
    return Finding("ok", f"{what}: taken")


def _reasoning(template: ChatTemplate) -> Iterator[Finding]:
    samples = _samples(template, _THOUGHTFUL)
    if isinstance(samples, str):
        yield Finding("note", "reasoning: refused; --reasoning drop leaves it out of the data")
        return
    kept = samples == 1
    yield Finding(
        "ok" if kept else "note",
        "reasoning: supervised, and "
        + ("kept in later turns" if kept else "dropped from later turns: one sample a question"),
    )
    [answer] = _answers(template, _ONE)
    if answer.prompt.rstrip().endswith("</think>"):
        yield Finding(
            "note", "an answer without reasoning follows an empty block, which is not supervised"
        )


def _generation_marks(template: ChatTemplate) -> Finding:
    if not template.marks_generation:
        return Finding("ok", "no {% generation %}: answers are told by rendering turn by turn")
    messages = _ONE[:1]
    prompt = template.text(messages, open_answer=True)
    starts = template.generation_starts(_ONE, (), thinking=False)
    if starts[-1:] == [len(prompt)]:
        return Finding("ok", "{% generation %} begins where the prompt ends")
    return Finding(
        "note", "{% generation %} does not begin where the prompt ends: the later counts"
    )


def _begin_of_sequence(template: ChatTemplate) -> Finding:
    bos = template.tokenizer.bos_token
    written = bool(bos) and template.text(_ONE).startswith(bos)
    added = template.tokenizer.encode("a")[:1] == [template.tokenizer.bos_token_id]
    if added and not written:
        return Finding("note", f"the tokenizer would add {bos}, the template does not; nor do we")
    return Finding("ok", f"begins with {bos}" if written else "begins without a special token")


def _samples(template: ChatTemplate, messages: tuple[Message, ...]) -> int | str:
    try:
        return len(tokenize_turns(Conversation("probe", messages), template))
    except InputError as error:
        return str(error).removeprefix("probe: ")


def _answers(template: ChatTemplate, messages: tuple[Message, ...]) -> list[Answer]:
    return render_answers(Conversation("probe", messages), template)
