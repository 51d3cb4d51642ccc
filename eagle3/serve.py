"""Serves a draft with its target by vLLM, with an OpenAI-compatible interface.

Exit codes: 0 stopped, 1 unexpected failure, 2 wrong option or draft, 130 interrupted.
"""

import click

from eagle3.command import Command, model_folder, run, user_path

_HELP = """Serve a target with its exported draft by vLLM, patched as in this workspace.

What follows `--` goes to `vllm serve` as it is: `-- --port 8000 --tensor-parallel-size 8`. It needs
a GPU (--config=cuda128).

\b
Exit codes:
  0    stopped
  1    unexpected failure
  2    an option or the draft is wrong
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
@click.option("-v", "--verbose", is_flag=True, help="Show stack traces.")
@click.argument("further", nargs=-1, metavar="[-- VLLM OPTIONS]")
def serve(
    draft: str,
    model: str | None,
    speculative_tokens: int,
    verbose: bool,
    further: tuple[str, ...],
) -> None:
    # Imported only now: a wrong option must not wait seconds for torch.
    from eagle3.draft.served_config import read_config, target_of
    from eagle3.engine import command_line

    folder = user_path(draft)
    read_config(folder)
    target = model_folder(model) if model else target_of(folder)
    command_line.serve(target, folder, speculative_tokens, further)


if __name__ == "__main__":
    run(serve)
