"""Runs pytest on the files named on the command line, as Bazel's test protocol wants it."""

import gc
import os
import sys

import pytest


def main(arguments: list[str]) -> int:
    """Returns pytest's exit code; no test found (5) is a failure like any other."""
    # torch asks for the user's name on import. A container's user may have none, and then Bazel
    # sets USER to nothing.
    os.environ["USER"] = os.environ.get("USER") or "nobody"
    options = [
        "--import-mode=importlib",
        "--rootdir=.",
        # The checkout's settings must not reach a test that runs unsandboxed beside it.
        "--config-file=/dev/null",
        "-p",
        "no:cacheprovider",
        "-o",
        "python_files=*_test.py",
        "-o",
        # Third-party packages warn about themselves at import; none of it is ours to mend.
        "addopts=-ra --color=no -W ignore::DeprecationWarning -W ignore::FutureWarning",
    ]
    if report := os.environ.get("XML_OUTPUT_FILE"):
        options.append(f"--junitxml={report}")
    if only := os.environ.get("TESTBRIDGE_TEST_ONLY"):
        options += ["-k", only]
    if scratch := os.environ.get("TEST_TMPDIR"):
        options.append(f"--basetemp={scratch}/pytest")
    exit_code = pytest.main([*options, *arguments])
    # Python's last look for garbage, among all that torch has made, takes a second of each test.
    gc.freeze()
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
