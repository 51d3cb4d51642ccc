"""Which tokens of a conversation the target would have generated.

The conversation is rendered turn by turn: once up to where an answer would begin, once with the
answer. What lies between, up to and including the end-of-turn token, is what the target would
have generated; headers, and the newline that many templates put after the end-of-turn token, are
not. This needs neither offsets from the tokenizer (Kimi's has none) nor a search in rendered
text (which finds what a user quotes, too).
"""

from collections.abc import Sequence

from eagle3.chat.chat_template import ChatTemplate
from eagle3.chat.conversation import Conversation
from eagle3.chat.token_sequence import TokenSequence
from eagle3.errors import InputError


def tokenize_conversation(conversation: Conversation, template: ChatTemplate) -> TokenSequence:
    """Renders `conversation` with its loss mask.

    Raises InputError where the rendering of the turns so far is not the beginning of the
    rendering of the whole (then no mask would be right), where an answer does not hold exactly
    one end-of-turn token, and where the mask would be empty or full.
    """
    messages = conversation.messages
    input_ids = _render(conversation, template, len(messages))
    loss_mask = [0] * len(input_ids)
    for turn, message in enumerate(messages):
        if message.role != "assistant":
            continue
        start = _shared_length(conversation, template, input_ids, turn, open_answer=True)
        end = _shared_length(conversation, template, input_ids, turn + 1)
        stops = [
            position
            for position in range(start, end)
            if input_ids[position] in template.end_of_turn_ids
        ]
        if len(stops) != 1:
            raise InputError(
                f"{conversation.place}: turn {turn + 1} holds {len(stops)} end-of-turn tokens "
                "instead of one; give this sample as `input_ids` and `loss_mask`"
            )
        generated = range(start, stops[0] + 1)
        loss_mask[generated.start : generated.stop] = [1] * len(generated)
    if not any(loss_mask) or all(loss_mask):
        extent = "all" if any(loss_mask) else "none"
        raise InputError(
            f"{conversation.place}: {extent} of its tokens are supervised, so the chat template "
            "does not tell questions from answers; give `input_ids` and `loss_mask`"
        )
    return TokenSequence(conversation.place, tuple(input_ids), tuple(loss_mask))


def _shared_length(
    conversation: Conversation,
    template: ChatTemplate,
    input_ids: Sequence[int],
    turns: int,
    *,
    open_answer: bool = False,
) -> int:
    """The number of tokens of the first `turns` turns, which must begin the whole."""
    part = _render(conversation, template, turns, open_answer=open_answer)
    if part != input_ids[: len(part)]:
        raise InputError(
            f"{conversation.place}: the tokens up to turn {turns + open_answer} change when later "
            "turns follow, so no loss mask is right (the template rewrites earlier turns, or an "
            "answer begins with white space); give this sample as `input_ids` and `loss_mask`"
        )
    return len(part)


def _render(
    conversation: Conversation,
    template: ChatTemplate,
    turns: int,
    *,
    open_answer: bool = False,
) -> list[int]:
    try:
        return template.render(conversation.messages[:turns], open_answer=open_answer)
    # A chat template is a program from the model's folder: it raises what it likes.
    except Exception as error:
        raise InputError(
            f"{conversation.place}: the chat template refuses this conversation ({error})"
        ) from error
