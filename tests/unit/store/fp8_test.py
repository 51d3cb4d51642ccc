"""States as 8-bit floats: how far off they are, and that stores of both kinds are kept apart."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from eagle3.errors import StoreError
from eagle3.inspection.compare import compare_stores
from eagle3.store.encoding import decode, encode
from eagle3.store.merge import merge_parts
from eagle3.store.part import Part
from eagle3.store.reader import StoreReader
from eagle3.store.row_format import BFLOAT16, FLOAT8, width
from eagle3.store.writer import StoreWriter
from tests.unit.store.stored import (
    CAPTURE_POINTS,
    HIDDEN_SIZE,
    contents,
    extract,
    make_manifest,
    make_samples,
    make_states,
)

SAMPLES = make_samples(5)
MANIFEST = dataclasses.replace(make_manifest(SAMPLES), dtype=FLOAT8)
WIDE = 512


def through(states: torch.Tensor) -> torch.Tensor:
    return decode(encode(states, FLOAT8), FLOAT8)


def test_values_keep_three_bits_of_their_fraction_whatever_the_row_s_size() -> None:
    torch.manual_seed(0)
    sizes = 10.0 ** torch.arange(-6, 7)
    states_NLH = (torch.randn(len(sizes), 3, WIDE) * sizes[:, None, None]).to(torch.bfloat16)
    error = (through(states_NLH).float() - states_NLH.float()).norm(dim=-1)
    share = error / states_NLH.float().norm(dim=-1)
    assert share.min() > 0.02
    assert share.max() < 0.035
    assert through(states_NLH).dtype == torch.bfloat16


def test_an_outlier_does_not_wipe_out_the_rest_of_its_row() -> None:
    torch.manual_seed(0)
    row = torch.randn(1, 1, WIDE).to(torch.bfloat16)
    row[0, 0, 7] = 3000
    rest = torch.ones(WIDE, dtype=torch.bool)
    rest[7] = False
    error = (through(row) - row)[0, 0, rest].float().norm() / row[0, 0, rest].float().norm()
    assert through(row)[0, 0, 7] == row[0, 0, 7]
    assert error < 0.04


def test_what_no_healthy_target_gives_is_still_seen() -> None:
    row = torch.ones(4, 1, WIDE, dtype=torch.bfloat16)
    row[0, 0, 3], row[1, 0, 3] = torch.nan, torch.inf
    row[2] = 0
    found = through(row)
    assert found[0].isnan().any()
    assert found[1].isnan().any()
    assert not found[2].any()
    assert (found[3] == found[3, 0, 0]).all()


def test_bf16_is_left_as_it_is() -> None:
    row = torch.randn(2, 1, WIDE).to(torch.bfloat16)
    assert encode(row, BFLOAT16) is row
    assert decode(row, BFLOAT16) is row
    assert (width(BFLOAT16, WIDE), width(FLOAT8, WIDE)) == (1024, 516)
    assert encode(row, FLOAT8).view(torch.uint8).shape == (2, 1, 516)


def test_a_store_gives_what_the_encoding_leaves(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    store = StoreReader(tmp_path)
    assert store.manifest.dtype == FLOAT8
    for sample in SAMPLES:
        found, states = store.read(sample.id)
        assert found == sample
        assert torch.equal(states, through(make_states(sample)))
    assert store.size < 4096 + MANIFEST.states_bytes(15) + 100


def test_plain_safetensors_reads_it(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    with safe_open(tmp_path / "shard-00000.safetensors", "pt") as shard:
        offsets = shard.get_tensor("sample_offsets")
        rows = slice(int(offsets[2]), int(offsets[3]))
        encoded = shard.get_slice("hidden_states_fp8")[rows]
        assert encoded.shape == (3, len(CAPTURE_POINTS), HIDDEN_SIZE + 4)
        values = encoded[..., :-4].contiguous().view(torch.float8_e4m3fn).float()
        scales = encoded[..., -4:].contiguous().view(torch.float32)
        expected = make_states(SAMPLES[2])
        assert torch.equal((values * scales).to(torch.bfloat16), through(expected))


def test_the_two_kinds_do_not_mix(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES[:2])
    with pytest.raises(StoreError, match="dtype is float8_e4m3fn there and bfloat16 here"):
        extract(tmp_path, make_manifest(SAMPLES), SAMPLES[2:])
    other = tmp_path / "other"
    extract(other, make_manifest(SAMPLES), SAMPLES[:2])
    shard = "shard-00000.safetensors"
    (other / shard).write_bytes((tmp_path / shard).read_bytes())
    with pytest.raises(StoreError, match=r"holds other states than manifest.json says"):
        StoreReader(other).read(SAMPLES[0].id)


def test_it_goes_on_after_a_kill_and_merges_like_any_other(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    extract(whole, MANIFEST, SAMPLES)
    out = tmp_path / "out"
    store = StoreWriter(Part(0, 2).folder(out), MANIFEST).__enter__()
    store.begin(SAMPLES[:3])
    for sample in SAMPLES[:2]:
        store.write(sample, make_states(sample))
    # As after a kill: nothing is committed, nothing closed.
    store._open.close()
    extract(Part(0, 2).folder(out), MANIFEST, SAMPLES[2:4])
    extract(Part(1, 2).folder(out), MANIFEST, SAMPLES[4:])
    merge_parts(out)
    assert contents(out) == contents(whole)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    extract(tmp_path, MANIFEST, SAMPLES)
    shard = tmp_path / "shard-00000.safetensors"
    content = bytearray(shard.read_bytes())
    content[4096] ^= 1
    shard.write_bytes(content)
    with pytest.raises(StoreError, match="its checksum is not the committed one"):
        StoreReader(tmp_path).read(SAMPLES[0].id)


def test_a_comparison_with_a_bf16_store_tells_the_error(tmp_path: Path) -> None:
    extract(tmp_path / "fp8", MANIFEST, SAMPLES)
    extract(tmp_path / "bf16", make_manifest(SAMPLES), SAMPLES)
    found = compare_stores(StoreReader(tmp_path / "fp8"), StoreReader(tmp_path / "bf16"))
    assert found.manifest
    assert found.different
    assert all(difference.cosine > 0.998 for difference in found.different)
