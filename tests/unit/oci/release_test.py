"""What a release says of itself: its commit, from git by way of Bazel's workspace status."""

import os
import subprocess
from pathlib import Path

import pytest

from tools.oci.errors import ImageError
from tools.oci.layout import release_labels
from tools.oci.release import Release, read_release

_STATUS = Path(__file__).parents[3] / "tools/oci/status.sh"
_GIT = """\
#!/bin/bash
case $1 in
  status) {status} ;;
  rev-parse) echo 0123abcd ;;
  show) echo 1700000000 ;;
esac
"""


def status(folder: Path, git: str) -> subprocess.CompletedProcess[str]:
    """What the workspace status command says beside such a git."""
    program = folder / "bin/git"
    program.parent.mkdir()
    program.write_text(git)
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", _STATUS], cwd=folder, env={"PATH": path}, capture_output=True, text=True
    )


def test_a_release_is_labelled_with_its_commit(tmp_path: Path) -> None:
    lines = status(tmp_path, _GIT.format(status=":")).stdout
    file = tmp_path / "stable-status.txt"
    # Bazel adds lines of its own, some of them without a value.
    file.write_text(f"BUILD_EMBED_LABEL \nBUILD_USER\n{lines}")
    assert read_release(file) == Release("0123abcd", 1_700_000_000)
    assert release_labels(file) == {
        "org.opencontainers.image.revision": "0123abcd",
        "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
    }


def test_a_checkout_that_is_not_its_commit_is_refused(tmp_path: Path) -> None:
    done = status(tmp_path, _GIT.format(status="echo ' M eagle3/train.py'"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith("commit or stash:\n M eagle3/train.py\n")


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    done = status(tmp_path, "#!/bin/bash\necho 'fatal: not a git repository' >&2\nexit 128\n")
    assert (done.returncode, done.stdout) == (128, "")
    assert done.stderr == "fatal: not a git repository\n"


@pytest.mark.parametrize("lines", ["", "STABLE_COMMIT \nSTABLE_COMMIT_TIME \n"])
def test_a_stamp_without_a_commit_says_how_to_build(lines: str, tmp_path: Path) -> None:
    file = tmp_path / "stable-status.txt"
    file.write_text(f"BUILD_USER me\n{lines}")
    with pytest.raises(ImageError, match="build it with --config=release"):
        read_release(file)
