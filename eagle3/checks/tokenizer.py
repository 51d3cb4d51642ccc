"""Whether the tokenizer in the target's folder gives back the text that it was given."""

import logging
from collections.abc import Iterator
from typing import Any

from eagle3.chat.remote_code import remote_code
from eagle3.checks.finding import Finding
from eagle3.checks.situation import Situation

# Accents, other scripts, an emoji of several bytes, runs of spaces and code.
_TEXT = "Größe 3 + 7 = 21, naïve café — 你好, привет 🙂\n\tdef f(x):\n        return x  # ok\n"
_INSTEAD = "give --data as `input_ids` and `loss_mask`, or complete the target's folder"


def check_tokenizer(situation: Situation) -> Iterator[Finding]:
    """Text to ids and back, and the ids against the vocabulary; no ids reach beyond it."""
    try:
        tokenizer = _load(situation)
    # transformers raises whatever its tokenizer classes raise: OSError, ValueError, KeyError ...
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        yield Finding("tokenizer", "warn", f"cannot be used ({reason})", _INSTEAD)
        return
    vocab_size = situation.architecture.vocab_size
    ids = tokenizer.encode(_TEXT, add_special_tokens=False)
    back = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    highest = max([*ids, tokenizer.eos_token_id or 0])
    if highest >= vocab_size:
        found = f"id {highest:,} is not in the target's vocabulary of {vocab_size:,}"
        yield Finding("tokenizer", "fail", found, "fetch the tokenizer that belongs to the target")
    elif back.strip() != _TEXT.strip():
        place = next(
            (n for n, (a, b) in enumerate(zip(_TEXT, back, strict=False)) if a != b), len(back)
        )
        found = f"{_TEXT[place : place + 8]!r} comes back as {back[place : place + 8]!r}"
        yield Finding("tokenizer", "warn", found, "see that your data has nothing of the kind")
    else:
        yield Finding(
            "tokenizer",
            "ok",
            f"{len(_TEXT)} characters are {len(ids)} tokens and the same text again",
        )


def _load(situation: Situation) -> Any:
    # Imported here: it takes seconds.
    from transformers import AutoTokenizer

    request = situation.request
    if request.trust_remote_code:
        remote_code(request.model)  # refuses code from elsewhere
    logging.getLogger("transformers").setLevel(logging.ERROR)
    return AutoTokenizer.from_pretrained(
        request.model, local_files_only=True, trust_remote_code=request.trust_remote_code
    )
