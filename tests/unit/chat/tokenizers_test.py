"""Tokenizers without offsets work; code that comes with a model runs only when it was asked for."""

import datetime
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from eagle3.chat.chat_template import ChatTemplate, load_chat_template
from eagle3.chat.remote_code import remote_code
from eagle3.errors import InputError
from tests.unit.chat import slow_tokenizer
from tests.unit.chat.conversations import golden
from tests.unit.chat.families import FAMILIES, make_family, write_settings
from tests.unit.chat.tiktoken_tokenizer import TiktokenTokenizer, write_merges

_DATE = datetime.date(2025, 1, 31)
_GOLDEN = Path(__file__).parent / "golden"


def make_slow(folder: Path, name: str) -> Path:
    """A target of the family `name` whose tokenizer is Python code in its folder."""
    family = FAMILIES[name]
    folder.mkdir()
    tokens = [*family.special, *map(chr, range(128)), "…"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    shutil.copy(str(slow_tokenizer.__file__), folder / "tokenization_slow.py")
    write_settings(
        folder,
        family,
        tokenizer_class="SlowTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_slow.SlowTokenizer", None]},
        extra_special_tokens={},
        additional_special_tokens=list(family.special),
    )
    return folder


@pytest.mark.parametrize("name", ["kimi_k2", "kimi_k2_5", "qwen3"])
def test_a_slow_tokenizer_gives_the_golden_samples(tmp_path: Path, name: str) -> None:
    folder = make_slow(tmp_path / "target", name)
    tokenizer = slow_tokenizer.SlowTokenizer(
        str(folder / "vocab.json"),
        chat_template=FAMILIES[name].template,
        additional_special_tokens=list(FAMILIES[name].special),
    )
    assert not tokenizer.is_fast
    stops = frozenset(tokenizer.get_vocab()[token] for token in FAMILIES[name].stops)
    expected = (_GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert golden(ChatTemplate(tokenizer, stops, _DATE)) == expected


@pytest.mark.parametrize("name", ["kimi_k2", "kimi_k2_5"])
def test_a_tiktoken_tokenizer_gives_the_golden_samples(tmp_path: Path, name: str) -> None:
    tokenizer = TiktokenTokenizer(
        str(write_merges(tmp_path / "tiktoken.model")),
        chat_template=FAMILIES[name].template,
        additional_special_tokens=list(FAMILIES[name].special),
    )
    assert not tokenizer.is_fast
    assert len(tokenizer.encode("the weather", add_special_tokens=False)) < len("the weather")
    stops = frozenset(tokenizer.added_tokens_encoder[token] for token in FAMILIES[name].stops)
    expected = (_GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert golden(ChatTemplate(tokenizer, stops, _DATE)) == expected


def test_code_of_a_model_is_named_and_not_run(tmp_path: Path) -> None:
    folder = make_slow(tmp_path / "target", "kimi_k2")
    with (folder / "tokenization_slow.py").open("a") as code:
        code.write("\nraise SystemExit('the code of the model was run')\n")
    with pytest.raises(
        InputError,
        match=r"without code of its own: tokenization_slow.py \(sha256 [0-9a-f]{12}\); read it, "
        r"then give --trust-remote-code[^\n]*$",
    ):
        load_chat_template(folder)


def test_code_of_a_model_runs_where_it_is_trusted(tmp_path: Path) -> None:
    folder = make_slow(tmp_path / "target", "kimi_k2")
    program = (
        "import sys, pathlib; from eagle3.chat.chat_template import load_chat_template;"
        "template = load_chat_template(pathlib.Path(sys.argv[1]), trust_remote_code=True);"
        "print(type(template.tokenizer).__module__, template.encode('Hi<|im_end|>'))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        # transformers copies the code before it runs it.
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "HF_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    specials = FAMILIES["kimi_k2"].special
    ids = [len(specials) + ord("H"), len(specials) + ord("i"), specials.index("<|im_end|>")]
    assert "tokenization_slow" in run.stdout
    assert str(ids) in run.stdout


def test_code_from_elsewhere_is_refused_even_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_slow(tmp_path / "target", "kimi_k2")
    write_settings(
        folder, FAMILIES["kimi_k2"], auto_map={"AutoTokenizer": "other/model--tokenization.Slow"}
    )
    # A machine may have that code in its cache, where transformers would find it.
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: sys.exit("it was run"))
    with pytest.raises(InputError, match=r"elsewhere \(other/model--tokenization.Slow\), which is"):
        load_chat_template(folder, trust_remote_code=True)


def test_a_tokenizer_of_a_known_kind_has_no_code(tmp_path: Path) -> None:
    folder = make_family(tmp_path / "target", FAMILIES["qwen3"])
    (folder / "modeling_other.py").write_text("the tokenizer does not need this")
    assert remote_code(folder) == {}
