"""What serving a draft hands to vLLM."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from eagle3.engine import command_line, environment
from eagle3.engine.command_line import serve_arguments
from eagle3.errors import InputError
from eagle3.serve import serve
from tests.unit.draft.drafts import make_draft, make_target_config


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    from eagle3.draft.export import export_draft
    from eagle3.draft.provenance import Provenance

    target = make_target_config(tmp_path / "target")
    export_draft(make_draft(target), tmp_path / "draft", Provenance(target))
    return tmp_path / "draft"


def test_vllm_is_given_target_and_draft() -> None:
    *command, speculative = serve_arguments(Path("/target"), Path("/draft"), 3)
    assert command == ["serve", "/target", "--speculative-config"]
    assert json.loads(speculative) == {
        "method": "eagle3",
        "model": "/draft",
        "num_speculative_tokens": 3,
    }


def test_the_drafts_own_target_is_served(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[object] = []
    monkeypatch.setattr(command_line, "serve", lambda *given: served.extend(given))
    options = ["--draft", str(draft), "--speculative-tokens", "2", "--", "--port", "8000"]
    CliRunner().invoke(serve, options, catch_exceptions=False, standalone_mode=False)
    assert served == [draft.parent / "target", draft, 2, ("--port", "8000")]


def test_a_load_that_would_fail_is_not_begun(
    draft: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[object] = []
    monkeypatch.setattr(command_line, "serve", lambda *given: served.append(given))
    monkeypatch.setattr(environment, "runs_on_cpu", lambda: False)
    options = ["--draft", str(draft), "--", "--tensor-parallel-size", "3"]
    with pytest.raises(SystemExit) as ended:
        serve.main(options)
    assert ended.value.code == InputError.exit_code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("the first weights; mend them, or start all the same with --no-preflight")
    assert served == []
    with pytest.raises(SystemExit):
        serve.main(["--no-preflight", *options])
    assert served == [(draft.parent / "target", draft, 5, ("--tensor-parallel-size", "3"))]


def test_vllm_is_started_for_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    vllm = ModuleType("main")
    monkeypatch.setattr(
        vllm, "main", lambda: started.append((sys.argv, os.environ["USER"])), raising=False
    )
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.cli.main", vllm)
    monkeypatch.setattr(command_line, "runs_on_cpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["serve"])
    monkeypatch.delenv("USER", raising=False)
    command_line.serve(Path("/target"), Path("/draft"), 5, ("--port", "8000"))
    words = ["vllm", *serve_arguments(Path("/target"), Path("/draft"), 5), "--port", "8000"]
    assert started == [(words, str(os.getuid()))]


def test_a_cpu_is_refused() -> None:
    with pytest.raises(InputError, match="does not speculate on a CPU"):
        command_line.serve(Path("/target"), Path("/draft"), 5)
