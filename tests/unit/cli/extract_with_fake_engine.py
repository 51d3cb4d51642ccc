"""The command as a process of its own, with the fake engine that its first argument names."""

import sys

import eagle3.extraction.extract
from eagle3 import extract
from eagle3.command import run
from tests.unit import fake_engine

if __name__ == "__main__":
    setattr(eagle3.extraction.extract, "Engine", getattr(fake_engine, sys.argv.pop(1)))  # noqa: B010
    run(extract.extract)
