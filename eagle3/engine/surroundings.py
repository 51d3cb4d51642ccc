"""What a target's processes find around them: environment, a folder to meet in, and silence."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from eagle3.engine.architecture import TargetArchitecture
from eagle3.engine.environment import set_environment
from eagle3.engine.model_classes import look_at_models_here
from eagle3.engine.options import EngineOptions
from eagle3.engine.quiet import quiet_libraries
from eagle3.engine.worker_log import workers_print_to

WORKER_LOG = "workers.log"
_FOLDER_PREFIX = "eagle3-engine-"
# sockaddr_un.sun_path, less the zero byte at its end; see unix(7).
_LONGEST_SOCKET_PATH = 107
# "/" + prefix + 8 random letters + "/" + the UUID by which vLLM names a socket.
_LONGEST_SOCKET_NAME = 1 + len(_FOLDER_PREFIX) + 8 + 1 + 36


def make_folder() -> Path:
    """A folder of this engine alone, for its sockets and its workers' log.

    A socket's path holds 107 bytes, and the user's temporary folder may be longer.
    """
    usual = tempfile.gettempdir()
    fits = len(os.fsencode(usual)) + _LONGEST_SOCKET_NAME <= _LONGEST_SOCKET_PATH
    return Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX, dir=usual if fits else "/tmp"))


@contextlib.contextmanager
def surroundings(
    options: EngineOptions, architecture: TargetArchitecture, folder: Path
) -> Iterator[None]:
    """Workers that are started inside meet in `folder`, and only with `verbose` they are heard."""
    set_environment(
        architecture,
        options.tensor_parallel,
        options.max_model_len,
        sockets=folder,
        verbose=options.verbose,
    )
    with contextlib.ExitStack() as quiet:
        if not options.verbose:
            quiet.enter_context(quiet_libraries())
            quiet.enter_context(workers_print_to(folder / WORKER_LOG))
        look_at_models_here()
        yield
