"""Which tokens of a conversation the target would have generated.

What the target is given is encoded alone, as a server does it; the tokens after it, up to and
including the end-of-turn token, are what the target would have generated. Headers, and the newline
that many templates put after the end-of-turn token, are not. This needs neither offsets from the
tokenizer (Kimi's has none) nor a search in rendered text (which finds what a user quotes, too).

Where a template rewrites earlier turns (it drops their reasoning, or writes their end differently)
a later turn was never generated after the tokens of an earlier one. Such a conversation becomes
several samples, each with the turns that do belong together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from eagle3.chat.answers import Answer, render_answers
from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation
from eagle3.chat.segments import Segmenter
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError


@dataclass(frozen=True)
class _View:
    """What the target saw and said up to the end of one turn; `generated` are its own tokens."""

    ids: list[int]
    generated: list[range]


def tokenize_conversation(conversation: Conversation, template: ChatTemplate) -> TokenSequence:
    """Renders `conversation` to one sample.

    Raises InputError as `tokenize_turns` does, and where one sample cannot hold all its answers.
    """
    sequences = tokenize_turns(conversation, template)
    if len(sequences) != 1:
        raise InputError(
            f"{conversation.place}: the tokens of earlier turns change when later turns follow, so "
            "no loss mask is right for all of them; prepare the data with //eagle3:prepare"
        )
    return sequences[0]


def tokenize_turns(conversation: Conversation, template: ChatTemplate) -> list[TokenSequence]:
    """Renders `conversation` to as few samples as hold every answer as it was generated.

    What follows the last answer is left out. Raises InputError where the template does not render
    a turn as it was given, where an answer does not hold exactly one end-of-turn token, and where
    a mask would be empty or full.
    """
    answers = render_answers(conversation, template)
    views: list[_View] = []
    for chain in _chains(answers):
        for view in _encode(conversation.place, chain, template):
            if views and view.ids[: len(views[-1].ids)] == views[-1].ids:
                view = _View(view.ids, views.pop().generated + view.generated)
            views.append(view)
    return [_masked(conversation.place, view) for view in views]


def _chains(answers: Sequence[Answer]) -> list[list[Answer]]:
    """The answers in groups in which each text begins the next prompt."""
    chains: list[list[Answer]] = []
    for answer in answers:
        if chains and answer.prompt.startswith(chains[-1][-1].whole):
            chains[-1].append(answer)
        else:
            chains.append([answer])
    return chains


def _encode(place: str, chain: Sequence[Answer], template: ChatTemplate) -> list[_View]:
    """One view of the whole chain where it can be cut beside special tokens, else one a turn."""
    found = _segmenter(template).encode(chain)
    if found is not None:
        return [_View(*found)]
    return [_encode_answer(place, answer, template) for answer in chain]


def _encode_answer(place: str, answer: Answer, template: ChatTemplate) -> _View:
    prompt, ids = template.encode_all([answer.prompt, answer.whole])
    if ids[: len(prompt)] != prompt:
        # The answer begins with white space that merges with the header's. The target was given
        # the header's tokens as they are, and generated the rest on its own.
        if not _continues_plainly(template):
            raise InputError(
                f"{place}: the beginning of turn {answer.turn + 1} merges with its header into one "
                "token; give this sample as `input_ids` and `loss_mask`"
            )
        ids = prompt + template.encode(answer.whole[len(answer.prompt) :])
    stops = [
        position
        for position in range(len(prompt), len(ids))
        if ids[position] in template.end_of_turn_ids
    ]
    if len(stops) != 1:
        raise InputError(
            f"{place}: turn {answer.turn + 1} holds {len(stops)} end-of-turn tokens instead of "
            "one; give this sample as `input_ids` and `loss_mask`"
        )
    return _View(ids[: stops[0] + 1], [range(len(prompt), stops[0] + 1)])


def _masked(place: str, view: _View) -> TokenSequence:
    loss_mask = [0] * len(view.ids)
    for generated in view.generated:
        loss_mask[generated.start : generated.stop] = [1] * len(generated)
    if all(loss_mask):
        raise InputError(
            f"{place}: all of its tokens are supervised, so the chat template does not tell "
            "questions from answers; give `input_ids` and `loss_mask`"
        )
    return TokenSequence(place, tuple(view.ids), tuple(loss_mask))


@lru_cache(maxsize=4)
def _segmenter(template: ChatTemplate) -> Segmenter:
    return Segmenter(template)


@lru_cache(maxsize=4)
def _continues_plainly(template: ChatTemplate) -> bool:
    """Whether text is encoded the same at the beginning and in the middle.

    SentencePiece tokenizers put a space before the first word of every text.
    """
    return template.encode("a\nb") == template.encode("a\n") + template.encode("b")
