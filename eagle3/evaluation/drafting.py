"""A draft that proposes chains of tokens, one sequence at a time, with its keys and values kept.

The order of things is that of vLLM 0.16.0 (`v1/spec_decode/eagle.py`): the rows that the target
has read since the last chain run first, on the target's states; each further token runs on the
draft's own state. What the draft's own tokens leave in the cache goes when the chain is done.
"""

import torch
from torch.nn import functional

from eagle3.draft.model import DraftModel


class Drafter:
    """Proposes the argmax of each step. Computes in the dtype of the states it is given."""

    def __init__(self, model: DraftModel) -> None:
        self.model = model.eval()
        self.start()

    def start(self) -> None:
        """Forgets the sequence."""
        config = self.model.config
        # Made anew at the first row, in its dtype and on its device.
        self._keys_SGD = torch.empty(0, config.num_key_value_heads, config.head_dim)
        self._values_SGD = self._keys_SGD

    def draft(self, next_tokens_T: torch.Tensor, fused_T3H: torch.Tensor, count: int) -> list[int]:
        """A chain of `count` tokens after T new rows of the target.

        Row t follows the rows of earlier calls, and `next_tokens_T[t]` is the token after it; the
        chain follows the last of them. Ids are the target's.
        """
        hidden_TH = self._step(next_tokens_T, self.model.fuse(fused_T3H))
        kept = len(self._keys_SGD)
        chain = [self._choose(hidden_TH)]
        while len(chain) < count:
            hidden_TH = self._step(next_tokens_T.new_tensor(chain[-1:]), hidden_TH[-1:])
            chain.append(self._choose(hidden_TH))
        self._keys_SGD, self._values_SGD = self._keys_SGD[:kept], self._values_SGD[:kept]
        return chain

    def _step(self, tokens_T: torch.Tensor, hidden_TH: torch.Tensor) -> torch.Tensor:
        first = len(self._keys_SGD)
        position_T = torch.arange(first, first + len(tokens_T), device=tokens_T.device)
        return self.model(tokens_T, hidden_TH, position_T, self._attend)

    def _choose(self, hidden_TH: torch.Tensor) -> int:
        best = self.model.logits(hidden_TH[-1:]).argmax(dim=-1)
        return int(self.model.target_ids(best))

    def _attend(
        self, q_TND: torch.Tensor, k_TGD: torch.Tensor, v_TGD: torch.Tensor
    ) -> torch.Tensor:
        before = len(self._keys_SGD)
        self._keys_SGD = torch.cat((self._keys_SGD.to(k_TGD), k_TGD))
        self._values_SGD = torch.cat((self._values_SGD.to(v_TGD), v_TGD))
        rows, keys = len(q_TND), before + len(k_TGD)
        sees_TS = torch.ones(rows, keys, dtype=torch.bool, device=q_TND.device).tril(before)
        q_NTD, k_GSD, v_GSD = (x.transpose(0, 1) for x in (q_TND, self._keys_SGD, self._values_SGD))
        outputs_NTD = functional.scaled_dot_product_attention(
            q_NTD, k_GSD, v_GSD, attn_mask=sees_TS, enable_gqa=True
        )
        return outputs_NTD.transpose(0, 1)
