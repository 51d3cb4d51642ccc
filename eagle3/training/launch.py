"""Several processes of one command on this machine, started by torch's own launcher (torchrun)."""

import signal
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

# By number: where nothing resolves names, not even this machine's own or "localhost" is known.
_LOOPBACK = "127.0.0.1"


def launch(count: int, module: str, arguments: Sequence[str]) -> int:
    """Runs `python -m module` in `count` processes; returns the exit code of the first to fail.

    A signal is handed on. The launcher waits half a minute for the processes to save and end,
    and then kills them, which loses what was not saved.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{_LOOPBACK}:0",
        # Else the processes meet at this machine's name.
        local_addr=_LOOPBACK,
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", module, *arguments)
    except ChildFailedError as error:
        return error.get_first_failure()[1].exitcode
    except SignalException as error:
        return 128 + signal.Signals(error.sigval)
    return 0
