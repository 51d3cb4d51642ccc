"""Serves a draft with its target by vLLM, with an OpenAI-compatible interface.

Exit codes: 0 stopped, 1 unexpected failure, 2 wrong option, draft or target, 130 interrupted.
"""

import click

from eagle3.command import Command, model_folder, run, user_path
from eagle3.progress import Progress

_HELP = """Serve a target with its exported draft by vLLM, patched as in this workspace.

What follows `--` goes to `vllm serve` as it is: `-- --port 8000 --tensor-parallel-size 8`. It needs
a GPU (--config=cuda128).

\b
Exit codes:
  0    stopped
  1    unexpected failure
  2    an option, the draft or the target is wrong
  130  interrupted
"""


@click.command(cls=Command, help=_HELP, context_settings={"show_default": True})
@click.option(
    "--draft",
    default="./eagle3-draft/draft",
    metavar="FOLDER",
    help="Exported draft, as train leaves it.",
)
@click.option(
    "--model",
    metavar="NAME|FOLDER",
    show_default="the one that the draft names",
    help="Target: a shipped model's name (smollm2) or the folder of a checkpoint.",
)
@click.option(
    "--speculative-tokens",
    type=click.IntRange(min=1),
    default=5,
    help="Length of the drafted chains.",
)
@click.option(
    "--preflight/--no-preflight",
    default=True,
    help="Stop before the load where it would fail, whatever vLLM's own options are.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
@click.argument("further", nargs=-1, metavar="[-- VLLM OPTIONS]")
def serve(
    draft: str,
    model: str | None,
    speculative_tokens: int,
    preflight: bool,
    verbose: bool,
    further: tuple[str, ...],
) -> None:
    # Imported only now: a wrong option must not wait seconds for torch.
    from eagle3.checks.run import check_target
    from eagle3.draft.served_config import read_config, target_of
    from eagle3.engine import command_line
    from eagle3.engine.environment import runs_on_cpu

    folder = user_path(draft)
    read_config(folder)
    target = model_folder(model) if model else target_of(folder)
    if preflight and not runs_on_cpu():
        # How the target is divided, and what memory it may take, is said to vLLM alone.
        check_target(target, Progress(), without={"parallel", "memory"})
    command_line.serve(target, folder, speculative_tokens, further)


if __name__ == "__main__":
    run(serve)
