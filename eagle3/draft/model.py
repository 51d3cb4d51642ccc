"""The EAGLE-3 draft: one Llama layer over [embedding of the next token; state so far].

Names and shapes of the weights are those of speculators 0.3.0 (`models/eagle3/core.py`) and of
vLLM 0.16 (`models/llama_eagle3.py`), so that a state dict moves between all three as it is. The
model knows nothing of packing and unrolling: whoever calls it says what each row may attend to.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from eagle3.draft.config import FUSED_POINTS, DraftConfig
from eagle3.draft.fp8 import fp8_linear
from eagle3.draft.rotary import Rotary, rotate
from eagle3.draft.target_weights import TargetWeights
from eagle3.draft.vocabulary import VocabularyMap

# (input [T, K], weight [N, K]) -> [T, N]
Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# (queries [T, N, D], keys [T, G, D], values [T, G, D]) -> outputs [T, N, D]; N heads share G.
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Linear(nn.Linear):
    """A projection without bias that computes in the dtype of its input.

    The weights may be fp32 masters that an optimiser holds while the activations are bf16.
    """

    product: Product = staticmethod(functional.linear)

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.product(input, self.weight.to(input.dtype))


class RMSNorm(nn.Module):
    """Root mean square norm, computed in fp32 as Llama does, weighed in the input's dtype."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension."""
    x_fp32 = x.to(torch.float32)
    scale = torch.rsqrt(x_fp32.square().mean(-1, keepdim=True) + eps)
    return (x_fp32 * scale).to(x.dtype) * weight.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention over [embedding; state], twice as wide as what it gives back.

    The three projections are one, of P = queries + keys + values, and it is split by its input:
    what the embedding adds depends on the token alone, so that unrolled steps share it.
    """

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.queries = config.num_attention_heads * config.head_dim
        self.keys = config.num_key_value_heads * config.head_dim
        self.q_proj = Linear(2 * config.hidden_size, self.queries)
        self.k_proj = Linear(2 * config.hidden_size, self.keys)
        self.v_proj = Linear(2 * config.hidden_size, self.keys)
        self.o_proj = Linear(self.queries, config.hidden_size)

    def project_embedding(self, embedding_TH: torch.Tensor) -> torch.Tensor:
        """What normed embeddings add to queries, keys and values [T, P]."""
        return self.q_proj.product(embedding_TH, self._weights(embedding_TH)[0])

    def forward(
        self,
        projected_TP: torch.Tensor,
        hidden_TH: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
    ) -> torch.Tensor:
        qkv_TP = projected_TP + self.q_proj.product(hidden_TH, self._weights(hidden_TH)[1])
        q_TQ, k_TK, v_TK = qkv_TP.split((self.queries, self.keys, self.keys), dim=-1)
        heads = (len(hidden_TH), -1, self.head_dim)
        q_TND, k_TGD = (rotate(x.view(heads), *angles) for x in (q_TQ, k_TK))
        return self.o_proj(attend(q_TND, k_TGD, v_TK.view(heads)).flatten(1))

    def _weights(self, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The weights [P, H] for embedding and state, in the dtype of `like`."""
        weights = (self.q_proj.weight, self.k_proj.weight, self.v_proj.weight)
        return torch.cat(weights).to(like.dtype).chunk(2, dim=1)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.gate_proj = Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x_TH: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x_TH)) * self.up_proj(x_TH))


class DraftLayer(nn.Module):
    """The decoder layer, as `LlamaDecoderLayer` of vLLM 0.16's `llama_eagle3.py`."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(
        self,
        projected_TP: torch.Tensor,
        hidden_TH: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
    ) -> torch.Tensor:
        """`projected_TP` is `project_embedding` of the tokens that the rows are fed."""
        normed_TH = self.hidden_norm(hidden_TH)
        residual_TH = normed_TH if self.norm_before_residual else hidden_TH
        residual_TH = residual_TH + self.self_attn(projected_TP, normed_TH, angles, attend)
        return residual_TH + self.mlp(self.post_attention_layernorm(residual_TH))

    def project_embedding(self, embedding_TH: torch.Tensor) -> torch.Tensor:
        return self.self_attn.project_embedding(self.input_layernorm(embedding_TH))


class DraftModel(nn.Module):
    """The draft. Its embeddings are the target's and never trained.

    A new model has random weights, zero embeddings and the identity as its vocabulary map's
    place-holder: `take_from_target` or `load_state_dict` comes next.
    """

    t2d: torch.Tensor  # [V] bool
    d2t: torch.Tensor  # [D] int64 offsets

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.fc = Linear(FUSED_POINTS * size, size)
        self.layers = nn.ModuleList([DraftLayer(config)])
        self.norm = RMSNorm(size, config.rms_norm_eps)
        self.lm_head = Linear(size, config.draft_vocab_size)
        self.embed_tokens = nn.Embedding(
            config.vocab_size, size, _weight=torch.zeros(config.vocab_size, size)
        )
        self.embed_tokens.weight.requires_grad_(False)
        self.rotary = Rotary(config.head_dim, config.rope_theta, config.rope_scaling)
        first = VocabularyMap.of(torch.arange(config.draft_vocab_size), config.vocab_size)
        self.register_buffer("t2d", first.t2d_V)
        self.register_buffer("d2t", first.d2t_D)

    def multiply_in_fp8(self) -> None:
        """From now on the decoder layer's products are in fp8, on a GPU that has it (`fp8.py`)."""
        for module in self.layers.modules():
            if isinstance(module, Linear):
                module.product = fp8_linear

    @property
    def layer(self) -> DraftLayer:
        return cast(DraftLayer, self.layers[0])

    @property
    def vocabulary(self) -> VocabularyMap:
        return VocabularyMap(self.t2d, self.d2t)

    def take_from_target(
        self, weights: TargetWeights, vocabulary: VocabularyMap, *, train_head: bool
    ) -> None:
        """Takes the target's embeddings, and as its own first head and norm the target's.

        What is not trained (the embeddings, and the head unless `train_head`) keeps the dtype in
        which the target stores it, half of fp32's memory; what is trained stays fp32.
        """
        device = self.d2t.device
        self.t2d.copy_(vocabulary.t2d_V)
        self.d2t.copy_(vocabulary.d2t_D)
        self.embed_tokens.weight = nn.Parameter(weights.embed_tokens_VH.to(device), False)
        head_DH = weights.lm_head_VH[vocabulary.target_ids.to(weights.lm_head_VH.device)]
        self.lm_head.weight = nn.Parameter(
            head_DH.to(device, torch.float32 if train_head else None), requires_grad=train_head
        )
        with torch.no_grad():
            self.norm.weight.copy_(weights.final_norm_H)

    def fuse(self, fused_T3H: torch.Tensor) -> torch.Tensor:
        """Three states a row [T, 3, H] to the state [T, H] that the first step reads."""
        return self.fc(fused_T3H.flatten(1))

    def forward(
        self,
        input_ids_T: torch.Tensor,
        hidden_TH: torch.Tensor,
        position_T: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """One step: the next tokens and the states so far [T, H] to new states [T, H].

        The new states are before `norm`, as the next step reads them; `logits` takes them on.
        Computes in the dtype of `hidden_TH`.
        """
        projected_TP = self.project(input_ids_T, hidden_TH.dtype)
        return self.step(projected_TP, hidden_TH, position_T, attend)

    def project(self, input_ids_T: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What each token adds to queries, keys and values wherever it is fed [T, P]."""
        return self.layer.project_embedding(self.embed_tokens(input_ids_T).to(dtype))

    def step(
        self,
        projected_TP: torch.Tensor,
        hidden_TH: torch.Tensor,
        position_T: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """`forward` for tokens that `project` has seen."""
        return self.layer(projected_TP, hidden_TH, self.rotary(position_T), attend)

    def logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Scores of the draft's own vocabulary [T, D]."""
        return self.lm_head(self.norm(hidden_TH))

    def target_ids(self, draft_ids: torch.Tensor) -> torch.Tensor:
        """The target's ids of draft tokens, in the shape given."""
        return draft_ids + self.d2t[draft_ids]
