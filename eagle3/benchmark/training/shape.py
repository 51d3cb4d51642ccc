"""What is measured: a draft, and the rows of a training step."""

from dataclasses import dataclass
from typing import Any, Self

import torch

from eagle3.draft.config import DraftConfig
from eagle3.training.batch import PackedBatch

CAPTURED_POINTS = 4


@dataclass(frozen=True)
class BenchShape:
    """A step of `tokens` rows in documents of `document_tokens`, all supervised.

    `fp8`: the decoder layer's matrix products (eagle3/draft/fp8.py); ours only.
    """

    config: DraftConfig
    tokens: int
    document_tokens: int
    unroll_steps: int = 3
    train_head: bool = False
    fp8: bool = False

    @classmethod
    def large(cls, tokens: int = 8192, **options: Any) -> Self:
        """The draft of an 8B Llama-3 target; `options` are the other fields."""
        config = DraftConfig(
            vocab_size=128256,
            draft_vocab_size=32000,
            hidden_size=4096,
            intermediate_size=14336,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
            max_position_embeddings=8192,
            capture_points=(2, 16, 29),
            rope_theta=500000.0,
        )
        return cls(config, tokens, 2048, **options)

    @classmethod
    def small(cls, tokens: int = 256, **options: Any) -> Self:
        """One that two CPU cores train in moments."""
        config = DraftConfig(
            vocab_size=4096,
            draft_vocab_size=1024,
            hidden_size=256,
            intermediate_size=768,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=2048,
            capture_points=(2, 4, 5),
        )
        return cls(config, tokens, 128, **options)

    @classmethod
    def of_dict(cls, fields: dict[str, Any]) -> Self:
        """From what `dataclasses.asdict` and JSON have made of one."""
        config: dict[str, Any] = {**fields["config"]}
        config["capture_points"] = tuple(config["capture_points"])
        others = {name: value for name, value in fields.items() if name != "config"}
        return cls(config=DraftConfig(**config), **others)

    def batches(self, device: torch.device) -> list[PackedBatch]:
        """Random rows in two packings: equal documents, and the same rows cut elsewhere.

        What is compiled for the first must serve the second.
        """
        size = self.document_tokens
        begin = min(size // 2, self.tokens)
        cuts = [_documents(self.tokens, size), [begin, *_documents(self.tokens - begin, size)]]
        hidden_states_TLH = torch.randn(
            self.tokens, CAPTURED_POINTS, self.config.hidden_size, device=device
        ).to(torch.bfloat16)
        input_ids_T = torch.randint(self.config.vocab_size, (self.tokens,), device=device)
        loss_mask_T = torch.ones(self.tokens, dtype=torch.bool, device=device)
        batches = []
        for lengths in cuts:
            lengths_D = torch.tensor(lengths, device=device)
            document_T = torch.arange(len(lengths), device=device).repeat_interleave(lengths_D)
            starts_T = (lengths_D.cumsum(0) - lengths_D)[document_T]
            position_T = torch.arange(self.tokens, device=device) - starts_T
            batches.append(
                PackedBatch(
                    input_ids_T,
                    hidden_states_TLH,
                    loss_mask_T,
                    document_T.to(torch.int32),
                    position_T,
                )
            )
        return batches


def _documents(rows: int, size: int) -> list[int]:
    """The lengths of documents of `size` rows, and of the last one, which has what is left."""
    return [min(size, rows - start) for start in range(0, rows, size)]
