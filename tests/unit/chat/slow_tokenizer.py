"""A tokenizer in plain Python, as Kimi's is: no offsets, and code that comes with the model."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizer


class SlowTokenizer(PreTrainedTokenizer):
    """Each character is a token, and so is each special token."""

    vocab_files_names = {"vocab_file": "vocab.json"}  # noqa: RUF012

    def __init__(self, vocab_file: str, **settings: Any) -> None:
        self._ids = json.loads(Path(vocab_file).read_text(encoding="utf-8"))
        self._tokens = {number: token for token, number in self._ids.items()}
        super().__init__(**settings)

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids[token]

    def _convert_id_to_token(self, index: int) -> str:
        return self._tokens[index]
