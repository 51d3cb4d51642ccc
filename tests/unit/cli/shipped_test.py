"""What is shipped is found by name, however the command was started."""

from pathlib import Path

import pytest

from eagle3.command import data_path
from eagle3.errors import Eagle3Error

FILES = {
    "smoke": "examples/smoke.jsonl",
    "heldout": "examples/heldout.jsonl",
    "smollm2-selfgen": "examples/smollm2-selfgen/dataset.json",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "eagle3_training"
    for path in FILES.values():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).touch()
    return workspace


@pytest.mark.parametrize("by", ["folder", "manifest"])
def test_shipped_data_is_found(workspace: Path, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "folder":
        monkeypatch.delenv("RUNFILES_MANIFEST_FILE", raising=False)
        monkeypatch.setenv("RUNFILES_DIR", str(workspace.parent))
    else:
        # As `bazel run` may have it: a list of files, in which no folder stands.
        manifest = workspace.parent / "MANIFEST"
        lines = [f"eagle3_training/{path} {workspace / path}\n" for path in FILES.values()]
        manifest.write_text("".join(lines))
        monkeypatch.setenv("RUNFILES_MANIFEST_FILE", str(manifest))
    found = {name: data_path(name) for name in FILES}
    assert found["smoke"] == workspace / "examples/smoke.jsonl"
    assert found["smollm2-selfgen"] == workspace / "examples/smollm2-selfgen"
    assert found["smollm2-selfgen"].is_dir()


def test_what_is_not_here_is_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNFILES_MANIFEST_FILE", raising=False)
    monkeypatch.setenv("RUNFILES_DIR", str(workspace.parent))
    (workspace / FILES["heldout"]).unlink()
    with pytest.raises(Eagle3Error, match="start the command with `bazel run`"):
        data_path("heldout")
