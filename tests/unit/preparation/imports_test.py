"""Preparing data needs no engine: neither vLLM nor speculators is ever loaded."""

import os
import pkgutil
import subprocess
import sys

import eagle3.preparation

_FOREIGN = ("vllm", "speculators", "eagle3.engine", "eagle3.extraction")


def test_no_engine_is_loaded() -> None:
    modules = [
        f"eagle3.preparation.{module.name}"
        for module in pkgutil.iter_modules(eagle3.preparation.__path__)
    ]
    assert len(modules) > 10
    program = (
        f"import sys, {', '.join([*modules, 'eagle3.prepare'])}\n"
        f"print([name for name in sys.modules if name.startswith({_FOREIGN!r})])"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
