"""The rows of one training step: whole documents packed to a fixed number of tokens."""

from dataclasses import dataclass, fields

import torch

PADDING = -1


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """T rows, the same T at every step, so that one compilation serves them all.

    Row t is the target's residual stream after it read token t. `document_T` is the number of
    the document that a row belongs to, counted from 0 in the order of the rows, and -1 for
    padding, which comes last; a document's rows stand together. `position_T` is the row's place
    in its document, from 0.
    """

    input_ids_T: torch.Tensor  # int64
    hidden_states_TLH: torch.Tensor  # bfloat16, L captured points, the last one num_layers
    loss_mask_T: torch.Tensor  # bool, True where token t is supervised
    document_T: torch.Tensor  # int32
    position_T: torch.Tensor  # int64

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "PackedBatch":
        """The same rows on `device`."""
        return PackedBatch(*(part.to(device, non_blocking=non_blocking) for part in self.tensors()))
