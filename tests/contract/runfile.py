"""The files of the repository that a test declares as its data."""

from pathlib import Path

from runfiles import Runfiles


def runfile(path: str) -> Path:
    """A declared file or folder by its path from the repository's root.

    Raises:
        FileNotFoundError: the test does not declare it.
    """
    runfiles = Runfiles.Create()
    found = runfiles.Rlocation(f"eagle3_training/{path}") if runfiles else None
    if found is None or not Path(found).exists():
        raise FileNotFoundError(path)
    return Path(found)
