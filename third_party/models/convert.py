"""Dequantises a GGUF file to a bf16 safetensors checkpoint with tokenizer and chat template."""

import os
import sys
from pathlib import Path

# torch asks for the user's name on import; an action has no USER, and a uid may have no entry.
os.environ.setdefault("USER", "nobody")
# Neither a hub nor a log line is wanted in a build action.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, checkpoint: Path) -> None:
    """Writes `checkpoint`/config.json, model.safetensors and the tokenizer's files."""
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16
    )
    model.save_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(checkpoint)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
