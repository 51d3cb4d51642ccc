"""A measurement, no test: the same builds on a service and on this machine, side by side.

    tools/bazel run //tests/remote:load -- --server=grpc://127.0.0.1:PORT

Many small actions, and one action of many small files: first, and again after an edit to one.
"""

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_RULES = """\
def _copied_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    words = "cat {} > {}".format(" ".join([file.path for file in ctx.files.few]), out.path)
    if ctx.files.many:
        words = "find -L {} -type f | wc -l > {}".format(ctx.files.many[0].dirname, out.path)
    inputs = ctx.files.few + ctx.files.many
    ctx.actions.run_shell(outputs = [out], inputs = inputs, command = words, mnemonic = "Load")
    return [DefaultInfo(files = depset([out]))]

copied = rule(
    implementation = _copied_impl,
    attrs = {
        "few": attr.label_list(allow_files = True),
        "many": attr.label_list(allow_files = True),
    },
)
"""

_BUILD = """\
load(":rules.bzl", "copied")

NUMBERS = [str(number) for number in range(ACTIONS)]

[copied(name = "small_" + number, few = ["small/" + number]) for number in NUMBERS]

filegroup(name = "small", srcs = ["small_" + number for number in NUMBERS])

copied(name = "large", many = glob(["many/**"]))
"""

_EVERYWHERE = ["--noenable_bzlmod", "--enable_workspace", "--incompatible_strict_action_env"]


class Workspace:
    """A Bazel workspace of its own in `folder`, with its own output; everything in it is fresh."""

    def __init__(self, folder: Path, actions: int, files: int) -> None:
        self._bazel = Path(os.environ["BUILD_WORKSPACE_DIRECTORY"], "tools/bazel")
        self._folder = folder / "workspace"
        self._startup = [f"--output_user_root={folder}/output", "--nohome_rc"]
        self._files = files
        # No service has seen these bytes before.
        self._salt = f"{time.time_ns()}"
        for kind, count in (("small", actions), ("many", files)):
            (self._folder / kind).mkdir(parents=True)
            for number in range(count):
                (self._folder / kind / str(number)).write_text(f"{kind} {number} {self._salt}\n")
        (self._folder / "WORKSPACE").touch()
        (self._folder / "rules.bzl").write_text(_RULES)
        (self._folder / "BUILD").write_text(_BUILD.replace("ACTIONS", str(actions)))
        # Bazel's own start is not what is measured.
        self._run("build", "--nobuild", "//...")

    def measure(self, options: Sequence[str]) -> list[float]:
        """Seconds for the small actions, for the large one, and for that again after an edit."""
        self._run("clean")
        taken = []
        for target in ("small", "large", "large"):
            edited = self._folder / "many" / str(self._files - 1)
            edited.write_text(f"edit {len(taken)} {options} {self._salt}\n")
            began = time.monotonic()
            self._run("build", *options, f"//:{target}")
            taken.append(time.monotonic() - began)
        return taken

    def stop(self) -> None:
        self._run("shutdown")

    def _run(self, command: str, *options: str) -> None:
        words = [self._bazel, *self._startup, command]
        if command != "shutdown":
            words += _EVERYWHERE
        subprocess.run([*words, *options], cwd=self._folder, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="as for --remote_executor")
    parser.add_argument("--actions", type=int, default=500)
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    remote = [
        f"--remote_executor={options.server}",
        "--spawn_strategy=remote",
        "--noremote_local_fallback",
        "--remote_default_exec_properties=OSFamily=linux",
        "--remote_default_exec_properties=Pool=cpu",
        "--jobs=16",
    ]
    with tempfile.TemporaryDirectory(prefix="eagle3-load-") as folder:
        workspace = Workspace(Path(folder), options.actions, options.files)
        try:
            columns = zip(workspace.measure(remote), workspace.measure([]), strict=True)
        finally:
            workspace.stop()
    rows = (
        f"{options.actions} small actions",
        f"an action of {options.files:,} small files",
        "the same after an edit to one",
    )
    print(f"{'':<40}{'remote':>10}{'here':>10}{'ratio':>8}")
    for row, (there, here) in zip(rows, columns, strict=True):
        print(f"{row:<40}{there:>8.1f} s{here:>8.1f} s{there / here:>8.1f}")


if __name__ == "__main__":
    main()
