"""A target's folder with everything but usable weights: config, tokenizer, chat template."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NUM_LAYERS = 8
HIDDEN_SIZE = 4
END_OF_TURN = "<|end|>"
BEGIN_OF_TURN = "<|begin|>"
END_OF_TEXT = "<|stop|>"
# What SmolLM2, Qwen and Kimi have in common: a header, the text, an end-of-turn token, a newline.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|begin|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|begin|>assistant\n' }}{% endif %}"
)


def make_target(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """Writes the folder of a Llama with a byte-level tokenizer, and returns it."""
    folder.mkdir(parents=True)
    tokenizer = _make_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "chat_template": chat_template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    # As with Llama-3: the token that ends a turn stands in this file alone.
    stop = {"eos_token_id": [tokenizer.token_to_id(END_OF_TURN)]}
    (folder / "generation_config.json").write_text(json.dumps(stop))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": NUM_LAYERS,
        "hidden_size": HIDDEN_SIZE,
        "num_attention_heads": 1,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 4096,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.arange(8.0)}, folder / "model.safetensors")
    return folder


def _make_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "\u010a"  # as the byte-level alphabet writes it
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    vocabulary[newline * 2] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(newline, newline)]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in (END_OF_TEXT, BEGIN_OF_TURN, END_OF_TURN)]
    )
    return tokenizer
