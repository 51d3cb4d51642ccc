"""The draft's vocabulary: the target's most frequent tokens, and the way there and back."""

from dataclasses import dataclass

import torch

from eagle3.errors import InputError


@dataclass(frozen=True)
class VocabularyMap:
    """`t2d_V[v]`: the draft knows target token v. Draft token d is target token d + `d2t_D[d]`.

    The format of speculators' and vLLM's weights: bool and int64 *offsets*, not ids.
    """

    t2d_V: torch.Tensor
    d2t_D: torch.Tensor

    @classmethod
    def of(cls, target_ids_D: torch.Tensor, vocab_size: int) -> "VocabularyMap":
        """The map of these target tokens, in ascending order whatever the order given."""
        ids_D = target_ids_D.to(torch.int64).sort().values
        t2d_V = torch.zeros(vocab_size, dtype=torch.bool)
        t2d_V[ids_D] = True
        return cls(t2d_V, ids_D - torch.arange(len(ids_D)))

    @property
    def target_ids(self) -> torch.Tensor:
        """The target's id of each draft token, ascending."""
        return self.d2t_D + torch.arange(len(self.d2t_D), device=self.d2t_D.device)

    def check(self) -> None:
        """Raises InputError where the two halves do not tell the same."""
        known_D = self.t2d_V.nonzero().squeeze(1)
        if not torch.equal(known_D, self.target_ids):
            raise InputError("t2d and d2t of the draft vocabulary differ; export the draft again")


def choose_vocabulary(frequencies_V: torch.Tensor, size: int) -> VocabularyMap:
    """The `size` most frequent tokens; of equals the lower ids.

    `frequencies_V[v]` is how often target token v is supervised. Raises InputError where the
    target has fewer tokens than `size`.
    """
    vocab_size = len(frequencies_V)
    if not 0 < size <= vocab_size:
        raise InputError(
            f"a draft vocabulary of {size:,} tokens does not fit a target of {vocab_size:,}"
        )
    order_V = torch.argsort(frequencies_V, descending=True, stable=True)
    return VocabularyMap.of(order_V[:size], vocab_size)


def coverage(frequencies_V: torch.Tensor, vocabulary: VocabularyMap) -> float:
    """The share of supervised tokens that the draft knows; 0.0 where nothing is supervised."""
    total = int(frequencies_V.sum())
    return int(frequencies_V[vocabulary.t2d_V].sum()) / total if total else 0.0
