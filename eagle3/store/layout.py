"""Where things lie in a store's folder, and the tensors of a sample's file."""

from pathlib import Path

SAMPLES = "samples"
INPUT_IDS = "input_ids"
LOSS_MASK = "loss_mask"
HIDDEN_STATES = "hidden_states"


def sample_path(folder: Path, sample_id: str) -> Path:
    return folder / SAMPLES / f"{sample_id}.safetensors"
