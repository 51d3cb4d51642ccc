"""Held-out prompts: conversations without their last answer, which the target is to give."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.conversation import Conversation
from eagle3.chat.formats import detect_format, parse_questions
from eagle3.chat.jsonl import read_jsonl
from eagle3.chat.token_sequence import TokenSequence, parse_token_sequence
from eagle3.errors import InputError

# The column that says what kind of prompt a row is, where the data has it.
KIND = "kind"
ONE_KIND = "all"


@dataclass(frozen=True)
class Prompt:
    """Token ids that end where the target would answer."""

    place: str
    kind: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class PromptSet:
    """Prompts, and the tokens with which the target ends an answer."""

    prompts: tuple[Prompt, ...]
    stop_ids: frozenset[int]

    def by_kind(self) -> dict[str, list[Prompt]]:
        """The prompts of each kind, in the order in which the kinds are met."""
        kinds: dict[str, list[Prompt]] = {}
        for prompt in self.prompts:
            kinds.setdefault(prompt.kind, []).append(prompt)
        return kinds


def read_prompts(
    path: Path, model: Path, limit: int, longest: int, *, trust_remote_code: bool = False
) -> PromptSet:
    """The first `limit` prompts of the JSONL file `path`, in the target's own chat template.

    Raises InputError for a line that cannot be a prompt or is longer than `longest` tokens.
    """
    template = load_chat_template(model, trust_remote_code=trust_remote_code)
    prompts = tuple(_read(path, template, limit))
    if not prompts:
        raise InputError(f"{path} is empty; give held-out conversations with --data")
    for prompt in prompts:
        if len(prompt.tokens) > longest:
            raise InputError(
                f"{prompt.place}: a prompt of {len(prompt.tokens):,} tokens leaves no room to "
                f"answer (at most {longest:,}); remove it or lower --max-new-tokens"
            )
    return PromptSet(prompts, template.end_of_turn_ids)


def _read(path: Path, template: ChatTemplate, limit: int) -> Iterator[Prompt]:
    for record in read_jsonl(path, limit):
        form = detect_format(record)
        if form == "tokens":
            tokens = _before_answer(parse_token_sequence(record))
        else:
            tokens = _render(parse_questions(record, form), template)
        yield Prompt(record.place, str(record.fields.get(KIND) or ONE_KIND), tokens)


def _render(conversation: Conversation, template: ChatTemplate) -> tuple[int, ...]:
    messages = conversation.messages
    if messages[-1].role == "assistant":
        messages = messages[:-1]
    text = template.text(messages, conversation.tools, open_answer=True)
    return tuple(template.encode(text))


def _before_answer(sequence: TokenSequence) -> tuple[int, ...]:
    """What stands before the last run of supervised tokens."""
    mask = sequence.loss_mask
    end = len(mask) - mask[::-1].index(1)
    begin = end
    while begin and mask[begin - 1]:
        begin -= 1
    if not begin:
        raise InputError(f"{sequence.place}: nothing stands before the answer; remove the line")
    return sequence.input_ids[:begin]
