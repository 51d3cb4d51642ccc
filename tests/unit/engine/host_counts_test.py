"""The counts of computed tokens come from the host, and only for latent attention."""

from typing import Any

import pytest
import torch
from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder
from vllm.v1.attention.backend import CommonAttentionMetadata

from eagle3.engine.host_counts import know_counts_on_host


def metadata() -> CommonAttentionMetadata:
    """Of two prompts, the second of which has 5 computed tokens, on a device without content."""
    device = torch.device("meta")
    return CommonAttentionMetadata(
        query_start_loc=torch.zeros(3, dtype=torch.int32, device=device),
        query_start_loc_cpu=torch.tensor([0, 4, 7], dtype=torch.int32),
        seq_lens=torch.zeros(2, dtype=torch.int32, device=device),
        _num_computed_tokens_cpu=torch.tensor([0, 5], dtype=torch.int32),
        num_reqs=2,
        num_actual_tokens=7,
        max_query_len=4,
        max_seq_len=8,
        block_table_tensor=torch.zeros(2, 1, dtype=torch.int32, device=device),
        slot_mapping=torch.zeros(7, dtype=torch.int64, device=device),
    )


def read_counts(_builder: Any, _prefix: int, common: CommonAttentionMetadata, _fast: bool) -> Any:
    """As MLACommonMetadataBuilder.build begins."""
    return common.compute_num_computed_tokens().cpu().tolist()


def test_the_host_tells_the_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    common = metadata()
    with pytest.raises(NotImplementedError):
        read_counts(None, 0, common, False)
    monkeypatch.setattr(MLACommonMetadataBuilder, "build", read_counts)
    know_counts_on_host()
    know_counts_on_host()
    build: Any = MLACommonMetadataBuilder.build
    assert build(None, 0, metadata()) == [0, 5]


def test_other_attention_keeps_the_counts_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    common = metadata()
    monkeypatch.setattr(MLACommonMetadataBuilder, "build", read_counts)
    know_counts_on_host()
    build: Any = MLACommonMetadataBuilder.build
    build(None, 0, common)
    assert common.compute_num_computed_tokens().device.type == "meta"
