"""A tokenizer as Kimi's: Python code over tiktoken, merges of bytes in `tiktoken.model`."""

import base64
from pathlib import Path
from typing import Any

import tiktoken
from tiktoken.load import load_tiktoken_bpe
from transformers import PreTrainedTokenizer

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_MERGED = ("th", "the", " the", "in", "ing", "er", "an", " w", " we", "ea", "\n\n", "is", " is")


class TiktokenTokenizer(PreTrainedTokenizer):
    """Tokens are bytes, each written as the character of that number; special tokens are text."""

    vocab_files_names = {"vocab_file": "tiktoken.model"}  # noqa: RUF012

    def __init__(self, vocab_file: str, **settings: Any) -> None:
        self._ranks = load_tiktoken_bpe(vocab_file)
        self._pieces = {rank: piece for piece, rank in self._ranks.items()}
        self._encoding = tiktoken.Encoding(
            "small", pat_str=_WORDS, mergeable_ranks=self._ranks, special_tokens={}
        )
        super().__init__(**settings)

    @property
    def vocab_size(self) -> int:
        return len(self._ranks)

    def get_vocab(self) -> dict[str, int]:
        tokens = {piece.decode("latin-1"): rank for piece, rank in self._ranks.items()}
        return {**tokens, **self.added_tokens_encoder}

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens).encode("latin-1").decode("utf-8", "replace")

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        ids = self._encoding.encode(text, disallowed_special=())
        return [self._pieces[number].decode("latin-1") for number in ids]

    def _convert_token_to_id(self, token: str) -> int:
        return self._ranks[token.encode("latin-1")]

    def _convert_id_to_token(self, index: int) -> str:
        return self._pieces[index].decode("latin-1")


def write_merges(path: Path) -> Path:
    """Writes the file of ranks: every byte, and a few merges of them."""
    pieces = [bytes([number]) for number in range(256)] + [text.encode() for text in _MERGED]
    lines = [f"{base64.b64encode(piece).decode()} {rank}" for rank, piece in enumerate(pieces)]
    path.write_text("\n".join(lines) + "\n")
    return path
