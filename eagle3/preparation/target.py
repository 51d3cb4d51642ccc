"""What of a target bears on its data: limits and tokenizer, read without opening either."""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3.chat.remote_code import remote_code
from eagle3.errors import InputError

_DEFAULT_MAX_MODEL_LEN = 2048
# Every file but code that can change a token id or a rendered conversation.
_TOKENIZER_FILES = (
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


@dataclass(frozen=True)
class Target:
    """`vocab_size` and `max_model_len` in tokens; `tokenizer_sha256` is over its files."""

    name: str
    vocab_size: int
    max_model_len: int
    tokenizer_sha256: str


def read_target(model: Path, max_model_len: int | None = None) -> Target:
    """Reads the configuration in `model`; `max_model_len` None: 2,048, or less if it takes less.

    Raises InputError where it is missing or damaged, or the target takes less than is asked.
    """
    path = model / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        # Targets that see pictures keep the language model's settings in a part of their own.
        text = {**config, **(config.get("text_config") or {})}
        vocab_size, positions = text["vocab_size"], text.get("max_position_embeddings")
        if not _is_size(vocab_size) or not (positions is None or _is_size(positions)):
            raise ValueError(f"vocab_size {vocab_size}, max_position_embeddings {positions}")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; complete the folder") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path} has no usable `vocab_size` and `max_position_embeddings`; complete it"
        ) from error
    if max_model_len is not None and positions is not None and max_model_len > positions:
        raise InputError(
            f"--max-model-len {max_model_len:,} is more than the {positions:,} positions of the "
            "target; lower it"
        )
    length = max_model_len or min(_DEFAULT_MAX_MODEL_LEN, positions or _DEFAULT_MAX_MODEL_LEN)
    return Target(model.name, vocab_size, length, tokenizer_digest(model))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and value > 0


def tokenizer_digest(model: Path) -> str:
    """SHA-256 over the names and contents of the files that make token ids of conversations.

    Code that the tokenizer brings is among them, whether or not it may be run.
    """
    digest = hashlib.sha256()
    for path in sorted(model / name for name in _TOKENIZER_FILES):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode())
            digest.update(content)
    # Where it lies in another repository, what is there is told when the tokenizer is opened.
    with suppress(InputError):
        for name, code_sha256 in remote_code(model).items():
            digest.update(f"{name} {code_sha256}\n".encode())
    return digest.hexdigest()
