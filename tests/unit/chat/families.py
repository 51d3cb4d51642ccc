"""Targets of the families whose templates are known, each with a small tokenizer of its kind."""

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

_TEMPLATES = Path(__file__).parent / "templates"
_TRAINING_TEXT = (
    "What is the weather in Ulm? The weather is fine.\n\nPlease think before you answer: ",
    'assistant user system tool {"name": "get_weather", "arguments": {"city": "Ulm"}}\n',
    "One, two, three and four are numbers.\nEins, zwei, drei und vier sind Zahlen.\n\n",
)

# How Llama-3 and those after it cut text into words: a header's newlines stay together.
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Family:
    """`special` are the special tokens of the template; at `stops` the target stops."""

    name: str
    special: tuple[str, ...]
    stops: tuple[str, ...]
    bos: str | None = None
    metaspace: bool = False

    @property
    def template(self) -> str:
        return (_TEMPLATES / f"{self.name}.jinja").read_text(encoding="utf-8")


_CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_DEEPSEEK_IN_ASCII = (
    "<|begin_of_sentence|>",
    "<|end_of_sentence|>",
    "<|User|>",
    "<|Assistant|>",
    "<|tool_calls_begin|>",
    "<|tool_call_begin|>",
    "<|tool_sep|>",
    "<|tool_call_end|>",
    "<|tool_calls_end|>",
    "<|tool_outputs_begin|>",
    "<|tool_output_begin|>",
    "<|tool_output_end|>",
    "<|tool_outputs_end|>",
)
# Its bars and underscores are not those of ASCII.
_DEEPSEEK = tuple(
    token.replace("|", "\uff5c").replace("_", "\u2581") for token in _DEEPSEEK_IN_ASCII
)
_KIMI = (
    "[BOS]",
    "[EOS]",
    "<|im_end|>",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
FAMILIES = {
    family.name: family
    for family in (
        Family("smollm2", _CHATML, ("<|im_end|>",)),
        Family("smollm3", _CHATML, ("<|im_end|>",)),
        Family("qwen2_5", _CHATML, ("<|im_end|>", "<|endoftext|>")),
        Family("qwen3", _CHATML, ("<|im_end|>", "<|endoftext|>")),
        Family("qwen3_thinking", _CHATML, ("<|im_end|>", "<|endoftext|>")),
        Family(
            "llama3",
            (
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eom_id|>",
                "<|eot_id|>",
            ),
            ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
            bos="<|begin_of_text|>",
        ),
        Family("deepseek_v3", _DEEPSEEK, (_DEEPSEEK[1],), bos=_DEEPSEEK[0]),
        Family("deepseek_r1", _DEEPSEEK, (_DEEPSEEK[1],), bos=_DEEPSEEK[0]),
        Family("kimi_k2", _KIMI, ("<|im_end|>",)),
        Family("kimi_k2_5", _KIMI, ("<|im_end|>",)),
        Family(
            "gpt_oss",
            (
                "<|startoftext|>",
                "<|endoftext|>",
                "<|return|>",
                "<|call|>",
                "<|start|>",
                "<|channel|>",
                "<|message|>",
                "<|end|>",
            ),
            ("<|return|>", "<|call|>", "<|endoftext|>"),
        ),
        Family(
            "glm4",
            (
                "<|endoftext|>",
                "[gMASK]",
                "<sop>",
                "<|system|>",
                "<|user|>",
                "<|assistant|>",
                "<|observation|>",
            ),
            ("<|endoftext|>", "<|user|>", "<|observation|>"),
        ),
        Family(
            "gemma3",
            ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
            ("<end_of_turn>", "<eos>"),
            bos="<bos>",
        ),
        Family(
            "mistral",
            (
                "<s>",
                "</s>",
                "[INST]",
                "[/INST]",
                "[TOOL_CALLS]",
                "[AVAILABLE_TOOLS]",
                "[/AVAILABLE_TOOLS]",
                "[TOOL_RESULTS]",
                "[/TOOL_RESULTS]",
            ),
            ("</s>",),
            bos="<s>",
            metaspace=True,
        ),
    )
}


def make_family(folder: Path, family: Family) -> Path:
    """Writes a target's tokenizer, chat template and stop tokens; returns `folder`."""
    folder.mkdir(parents=True)
    tokenizer = _metaspace_tokenizer() if family.metaspace else _byte_level_tokenizer()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in family.special])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_settings(folder, family, tokenizer_class="PreTrainedTokenizerFast")
    stops = [tokenizer.token_to_id(token) for token in family.stops]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}))
    return folder


def write_settings(folder: Path, family: Family, **settings: object) -> None:
    """Writes tokenizer_config.json."""
    named = {"eos_token": family.stops[0], "bos_token": family.bos}
    content = {**named, "chat_template": family.template, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))


def _byte_level_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT, trainer)
    return tokenizer


def _metaspace_tokenizer() -> Tokenizer:
    """As a SentencePiece tokenizer converted by transformers: a space before the first word."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=[chr(code) for code in range(32, 127)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TRAINING_TEXT, trainer)
    return tokenizer
