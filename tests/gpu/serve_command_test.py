"""`serve` as its user starts it: SmolLM2 with a draft, asked over HTTP, ended by Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from eagle3.command import shipped_path
from eagle3.draft.config import draft_config_for
from eagle3.draft.export import export_draft
from eagle3.draft.model import DraftModel
from eagle3.draft.provenance import Provenance
from eagle3.draft.target_weights import read_target_weights
from eagle3.draft.vocabulary import VocabularyMap
from tools.remote.ports import free_ports

POINTS = (2, 15, 27)
DRAFT_VOCABULARY = 512
CHAIN = 3
NEW_TOKENS = 24
# Less than the test has, so that what the server said is shown.
SECONDS_TO_START = 200.0
SECONDS_TO_STOP = 60.0


def test_a_draft_is_served_over_http(tmp_path: Path) -> None:
    draft = untrained_draft(shipped_path("third_party/models/smollm2"), tmp_path / "draft")
    words = [
        *(sys.executable, "-s", "-m", "eagle3.serve", "--draft", str(draft)),
        *("--speculative-tokens", str(CHAIN)),
    ]
    with served(words, tmp_path / "server.log") as address:
        [model] = asked(f"{address}/v1/models")["data"]
        question = {
            "model": model["id"],
            "messages": [{"role": "user", "content": "How many legs does a spider have?"}],
            "max_tokens": NEW_TOKENS,
            "temperature": 0,
        }
        answer = asked(f"{address}/v1/chat/completions", question)
        metrics = text_of(f"{address}/metrics")
    assert answer["choices"][0]["message"]["content"].strip()
    drafts = count(metrics, "spec_decode_num_drafts")
    assert drafts > 0
    assert count(metrics, "spec_decode_num_draft_tokens") == CHAIN * drafts


def untrained_draft(target: Path, folder: Path) -> Path:
    config = draft_config_for(target, DRAFT_VOCABULARY, POINTS)
    model = DraftModel(config)
    vocabulary = VocabularyMap.of(torch.arange(DRAFT_VOCABULARY), config.vocab_size)
    model.take_from_target(read_target_weights(target), vocabulary, train_head=True)
    export_draft(model, folder, Provenance(target))
    return folder


@contextmanager
def served(words: list[str], log: Path) -> Generator[str]:
    """Starts a server with options of vLLM's behind `words`; its address, until Ctrl-C ends it."""
    host, [port] = "127.0.0.1", free_ports(1)
    address = f"http://{host}:{port}"
    options = ("--host", host, "--port", str(port), "--max-model-len", "512")
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*words, "--", *options, "--enforce-eager", "--gpu-memory-utilization", "0.3"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    try:
        wait_for(address, server, log)
        yield address
        server.send_signal(signal.SIGINT)
        assert server.wait(SECONDS_TO_STOP) in (0, 130), log.read_text()[-3000:]
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    ends = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            text_of(f"{address}/health")
        except OSError:
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < ends, log.read_text()[-3000:]
            time.sleep(0.5)
        else:
            return


def asked(url: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    return json.loads(text_of(url, question))


def text_of(url: str, question: dict[str, Any] | None = None) -> str:
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    # A machine's proxy has no part in what is served on it.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return answer.read().decode()


def count(metrics: str, name: str) -> float:
    """A counter of vLLM's, of all engines together."""
    found = re.findall(rf"^vllm:{name}_total\{{.*\}} (\S+)$", metrics, flags=re.M)
    return sum(map(float, found))
