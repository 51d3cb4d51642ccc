"""speculators' own trainer runs on a store of ours, and what it makes is a draft like ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from eagle3.benchmark.training import peer_run
from eagle3.benchmark.training.peer_run import PeerRun, train_peer_draft
from eagle3.draft.export import load_draft
from eagle3.draft.provenance import PROVENANCE
from eagle3.engine.peer_training import PeerRecipe, PeerSamples
from eagle3.errors import InputError, StoreError
from eagle3.store.writer import StoreWriter
from eagle3.train_peer import train_peer
from tests.unit.training.tiny_run import (
    make_manifest,
    make_samples,
    make_world,
    run_training,
    tiny_config,
)

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it compiles does not compile for a CPU."""
    monkeypatch.setattr(torch._dynamo.config, "disable", True)


@pytest.fixture
def request_(tmp_path: Path) -> PeerRun:
    """After a training of twelve steps; 128 rows are what its attention needs on a CPU."""
    world = make_world(tmp_path)
    run_training(tiny_config(world, tokens_per_step=128))
    return PeerRun(
        run=world / "out",
        out=world / "peer",
        learning_rate=None,
        unroll_steps=2,
        unroll_decay=1.0,
        feed="argmax",
        noise=0.05,
        norm_before_residual=True,
    )


def test_it_trains_as_many_steps_and_is_exported(request_: PeerRun) -> None:
    report = train_peer_draft(request_, CPU)
    assert (report.version, report.steps) == ("0.3.0", 12)
    ours, theirs = load_draft(request_.run / "draft"), load_draft(report.draft)
    assert theirs.config == replace(ours.config, norm_before_residual=True)
    assert torch.equal(theirs.d2t, ours.d2t)
    assert not torch.equal(theirs.fc.weight, ours.fc.weight)
    # Its head is trained with the rest, ours was not.
    assert not torch.equal(theirs.lm_head.weight, ours.lm_head.weight)
    provenance = json.loads((report.draft / PROVENANCE).read_text())
    assert provenance["training"]["speculators"] == "0.3.0"
    trained_by_us = json.loads((request_.run / "draft" / PROVENANCE).read_text())
    assert provenance["states"] == trained_by_us["states"]
    assert [path.name for path in request_.out.parent.iterdir() if "peer" in path.name] == ["peer"]


def test_it_learns(request_: PeerRun) -> None:
    short = train_peer_draft(request_, CPU)
    run = request_.run.with_name("longer")
    run_training(tiny_config(request_.run.parent, tokens_per_step=128, out=str(run), max_steps=40))
    long = train_peer_draft(replace(request_, run=run, out=run.with_name("peer-longer")), CPU)
    assert long.loss < 0.8 * short.loss


def test_it_has_the_samples_that_the_training_had(
    request_: PeerRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, samples = request_.run.parent, make_samples(24)
    manifest = make_manifest(world / "target", samples, held_out=samples[:9])
    with StoreWriter(world / "store", manifest, {sample.id for sample in samples[:9]}):
        pass
    given: list[tuple[int, ...]] = []

    def note(recipe: PeerRecipe, peer_samples: PeerSamples, device: torch.device) -> None:
        for number in range(len(peer_samples.lengths)):
            given.append(tuple(peer_samples.read(number)[0].tolist()))
        raise InterruptedError

    monkeypatch.setattr(peer_run, "train_peer", note)
    with pytest.raises(InterruptedError):
        train_peer_draft(request_, CPU)
    assert sorted(given) == sorted(sample.input_ids for sample in samples[9:])


def test_what_it_is_given_must_be_a_run_and_an_empty_folder(request_: PeerRun) -> None:
    with pytest.raises(InputError, match=r"is not the folder of a training: no config.yaml"):
        train_peer_draft(replace(request_, run=request_.run.parent), CPU)
    request_.out.mkdir()
    (request_.out / "thesis.tex").touch()
    with pytest.raises(StoreError, match="is not empty"):
        train_peer_draft(request_, CPU)
    with pytest.raises(StoreError, match=r"cannot write to .*thesis.tex: File exists; give an"):
        train_peer_draft(replace(request_, out=request_.out / "thesis.tex"), CPU)


def test_a_run_that_followed_is_refused(request_: PeerRun) -> None:
    config = request_.run / "config.yaml"
    config.write_text(config.read_text().replace("follow: false", "follow: true"))
    with pytest.raises(InputError, match="give a training without --follow"):
        train_peer_draft(request_, CPU)


def test_the_command_tells_what_it_made(request_: PeerRun, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command sets it on a CPU, and it must not outlive this test.
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    flags = ["--run", str(request_.run), "--out", str(request_.out), "--unroll-steps", "1"]
    result = CliRunner().invoke(train_peer, [*flags, "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["version"], report["steps"]) == ("0.3.0", 12)
    assert report["draft"] == str(request_.out / "draft")
    assert "training it ..." in result.stderr
    again = CliRunner().invoke(train_peer, flags)
    assert again.exit_code == 4
    assert (
        again.stderr.splitlines()[-1] == f"error: {request_.out} is not empty; give another --out"
    )
