"""Prompts for the target to answer: conversations up to an answer that somebody gave."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eagle3.chat.chat_template import load_chat_template
from eagle3.chat.conversation import Conversation
from eagle3.chat.formats import detect_format, parse_questions
from eagle3.chat.jsonl import read_jsonl
from eagle3.chat.serving import Served
from eagle3.chat.token_sequence import TokenSequence, parse_token_sequence
from eagle3.errors import InputError
from eagle3.preparation.dataset import VALIDATION, read_description_for
from eagle3.preparation.drawing import draw_prompted, part_digest

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
    """Prompts, and the tokens with which the target ends an answer; `origin` tells whence.

    `held_out_sha256` is over the ids of the samples, of those that a preparation holds out, of
    which they are some; None where they are not.
    """

    prompts: tuple[Prompt, ...]
    stop_ids: frozenset[int]
    origin: str = ""
    held_out_sha256: str | None = None

    def by_kind(self) -> dict[str, list[Prompt]]:
        """The prompts of each kind, in the order in which the kinds are met."""
        kinds: dict[str, list[Prompt]] = {}
        for prompt in self.prompts:
            kinds.setdefault(prompt.kind, []).append(prompt)
        return kinds


def read_prompts(
    data: Path,
    model: Path,
    limit: int,
    longest: int,
    *,
    seed: int = 0,
    thinking: bool = False,
    trust_remote_code: bool = False,
) -> PromptSet:
    """At most `limit` prompts of `data`: a JSONL file, or a folder that a preparation wrote.

    The first ones of a file, in the target's own chat template, which ask to think only with
    `thinking`; of a folder those that `seed` draws. Raises InputError for a line that cannot be a
    prompt, for a prompt of more than `longest` tokens, and for a folder that was prepared for
    another tokenizer.
    """
    template = load_chat_template(model, trust_remote_code=trust_remote_code)
    held_out = None
    if data.is_dir():
        prompts, origin, held_out = _draw(data, model, limit, seed)
    else:
        prompts = tuple(_read(data, Served(template, thinking), limit))
        origin = f"the first of {data.name}" + (", asking to think" if thinking else "")
    if not prompts:
        raise InputError(f"no prompts in {data}; give held-out conversations with --data")
    for prompt in prompts:
        if len(prompt.tokens) > longest:
            raise InputError(
                f"{prompt.place}: a prompt of {len(prompt.tokens):,} tokens leaves no room to "
                f"answer (at most {longest:,}); lower --max-new-tokens, or give other data"
            )
    return PromptSet(prompts, template.end_of_turn_ids, origin, held_out)


def _draw(
    folder: Path, model: Path, limit: int, seed: int
) -> tuple[tuple[Prompt, ...], str, str | None]:
    """Prompts of a prepared dataset: what stands before the first answer of each sample.

    With their origin, and the digest of the samples held out, where they are of those.
    """
    samples = read_description_for(model, folder)["samples"]
    part = VALIDATION if samples[VALIDATION] else "train"
    prompts = tuple(
        Prompt(
            f"{folder.name}:{row['id']}",
            row.get(KIND) or ONE_KIND,
            tuple(row["input_ids"][: row["loss_mask"].index(1)]),
        )
        for row in draw_prompted(folder, part, limit, seed)
    )
    origin = f"of the {samples[part]:,} {part} samples of {folder.name}"
    if part == VALIDATION:
        return prompts, origin, part_digest(folder, part)
    return prompts, f"{origin}, those that a training with --seed {seed} holds out first", None


def _read(path: Path, served: Served, limit: int) -> Iterator[Prompt]:
    for record in read_jsonl(path, limit):
        form = detect_format(record)
        if form == "tokens":
            tokens = _before_answer(parse_token_sequence(record))
        else:
            tokens = _render(parse_questions(record, form), served)
        yield Prompt(record.place, str(record.fields.get(KIND) or ONE_KIND), tokens)


def _render(conversation: Conversation, served: Served) -> tuple[int, ...]:
    messages = conversation.messages
    if messages[-1].role == "assistant":
        messages = messages[:-1]
    try:
        return tuple(served.whole(messages, conversation.tools, question=False))
    except InputError as error:
        raise InputError(f"{conversation.place}: {error}; remove the line") from error


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
