"""The embedded default: extract, then train, on what is shipped and without a GPU."""

import json
from pathlib import Path

from click.testing import CliRunner

from eagle3.draft.export import load_draft
from eagle3.extract import extract
from eagle3.train import train


def test_a_draft_of_the_shipped_target_learns_from_the_shipped_conversations(
    tmp_path: Path,
) -> None:
    runner = CliRunner(env={"BUILD_WORKING_DIRECTORY": str(tmp_path)})
    extracted = runner.invoke(extract, ["--json"])
    assert extracted.exit_code == 0, extracted.stderr
    # A quarter of what the default does; the learning rate ends with it.
    trained = runner.invoke(train, ["--json", "--max-steps", "36"])
    assert trained.exit_code == 0, trained.stderr
    report = json.loads(trained.stdout)
    assert report["validated"]
    assert report["before"] < 1.02
    assert report["after"] > report["before"] + 0.03
    assert report["waited"] < 0.05
    draft = load_draft(Path(report["draft"]))
    assert draft.config.capture_points == (2, 15, 27)
    assert draft.config.draft_vocab_size == 4096
