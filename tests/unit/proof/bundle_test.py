"""Parts are spread over folders that can each be sent."""

import random
import sys
from pathlib import Path

import pytest

from tests.gpu import bundle, code_part
from tests.gpu.bundle import spread
from tools.oci.errors import ImageError
from tools.oci.layout import CONFIG, MANIFEST, Layout

SIZE = 10_000_000
# Kept free in the first folder, for scripts and code.
RESERVED = 8_000_000


def test_every_file_has_its_folder_and_no_folder_is_too_large(tmp_path: Path) -> None:
    chance = random.Random(0)
    sizes = [chance.randrange(1, SIZE + 1) for _ in range(30)] + [SIZE] * 3
    files = []
    for number, size in enumerate(sizes):
        file = tmp_path / f"layer.part-{number:03}"
        with file.open("wb") as sparse:
            sparse.truncate(size)
        files.append(file)
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    count = spread(files, tmp_path, SIZE, [script])
    folders = sorted(path for path in tmp_path.iterdir() if path.is_dir())
    assert [folder.name for folder in folders] == [f"{number:02}" for number in range(count)]
    found = [file.name for folder in folders for file in folder.iterdir()]
    assert sorted(found) == sorted([*(file.name for file in files), "run.sh"])
    assert (folders[0] / "run.sh").exists()
    for folder in folders:
        assert sum(file.stat().st_size for file in folder.iterdir()) <= SIZE
    first = sum(file.stat().st_size for file in folders[0].iterdir())
    assert first <= SIZE - RESERVED + (folders[0] / "run.sh").stat().st_size
    # No two of the folders would have gone into one.
    weights = sorted(sum(file.stat().st_size for file in folder.iterdir()) for folder in folders)
    assert weights[0] + weights[1] > SIZE - RESERVED


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command is told to fill, from an image without layers."""
    layout = Layout(tmp_path / "layout")
    config = layout.add_json({"config": {"Env": []}}, CONFIG)
    layout.finish([layout.add_json({"config": config, "layers": []}, MANIFEST)])
    script = tmp_path / "script.sh"
    script.write_text("")
    words = [
        "--layout",
        tmp_path / "layout",
        "--install",
        script,
        "--run",
        script,
        tmp_path / "parts",
    ]
    monkeypatch.setattr(sys, "argv", ["bundle", *map(str, words)])
    return tmp_path / "parts"


def test_a_folder_that_is_there_is_left_alone(command: Path) -> None:
    command.mkdir()
    (command / "mine").write_text("x")
    with pytest.raises(ImageError, match="is there already"):
        bundle.main()
    assert (command / "mine").read_text() == "x"


def test_of_a_bundle_that_fails_nothing_stays(command: Path) -> None:
    with pytest.raises(ImageError, match="no file of the image matches"):
        bundle.main()
    assert not command.exists()


@pytest.mark.parametrize(
    ("edited", "warning"),
    [
        ("", ""),
        (
            " M eagle3/train.py\n?? new.py\n",
            "warning: 2 files are not as 0123456789ab has them, such as eagle3/train.py; what goes "
            "is the commit\n",
        ),
    ],
)
def test_what_is_not_in_the_commit_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    edited: str,
    warning: str,
) -> None:
    def git(*words: str) -> str:
        for word in words:
            if word.startswith("--output="):
                Path(word.removeprefix("--output=")).write_bytes(b"code")
        return {"rev-parse": "0123456789abcdef\n", "status": edited}.get(words[3], "")

    monkeypatch.setattr(code_part, "said_by", git)
    code_part.write_code(tmp_path, tmp_path)
    assert capsys.readouterr().err == warning
    assert (tmp_path / "code.tar.gz.sha256").read_text().endswith("  code.tar.gz\n")


def test_a_folder_without_a_commit_is_one_line() -> None:
    with pytest.raises(ImageError, match="git cannot tell the commit: no repository"):
        code_part.said_by(sys.executable, "-c", "exit('no repository')")
