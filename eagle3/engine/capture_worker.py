"""What extraction adds to each of vLLM's worker processes: states go from there to disk.

vLLM mixes `CaptureWorker` into its worker class (ParallelConfig.worker_extension_cls) and calls its
methods by name. Only plans and reports cross those calls.
"""

import atexit
import gc
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed import get_pp_group, get_tp_group

from eagle3.engine.capture import Capture
from eagle3.engine.decoder import find_decoder_layers
from eagle3.engine.host_counts import know_counts_on_host
from eagle3.engine.parent import end_with_parent
from eagle3.engine.ring import Ring
from eagle3.engine.row_writer import RowFile, RowWriter
from eagle3.engine.rows import Report, Rows, Share, in_order, section
from eagle3.engine.transfer import transfer_from
from eagle3.store.encoding import encode
from eagle3.store.row_format import BFLOAT16, width

# A worker imports this module as one of the first things it does, and a method would come too late.
end_with_parent()
# Python's last look for garbage, among all that torch and vLLM have made, takes more than a second.
atexit.register(gc.freeze)


@dataclass(frozen=True)
class CaptureSettings:
    """Of the tensor-parallel ranks, the first `writing_ranks` write a share of the rows each.

    A step has `most_rows` rows at most; `ring_bytes` of host memory are used by each rank.
    """

    capture_points: tuple[int, ...]
    hidden_size: int
    most_rows: int
    writing_ranks: int
    ring_bytes: int
    writer_threads: int
    states_dtype: str = BFLOAT16


class CaptureWorker:
    """Methods for the workers; `model_runner` and `execute_model` are vLLM's own."""

    model_runner: Any
    execute_model: Any
    _row_sender: "RowSender | None"

    def start_capture(self, settings: CaptureSettings) -> None:
        """Puts hooks on the decoder; call it when the target is warm.

        Raises ValueError for a target whose layers are not found, or not all in one process.
        """
        if get_pp_group().world_size > 1:
            raise ValueError(
                "hidden states cannot be captured with pipeline parallelism: each rank holds a "
                "part of the layers only; use tensor parallelism"
            )
        model = self.model_runner.get_model()
        rank = get_tp_group().rank_in_group
        self._row_sender = None
        if rank < settings.writing_ranks:
            capture = Capture(
                find_decoder_layers(model), settings.capture_points, settings.hidden_size
            )
            share = Share(rank, settings.writing_ranks)
            self._row_sender = RowSender(settings, share, capture, self.model_runner.device)
        know_counts_on_host()
        # Nothing is generated here, and a head of 160,000 tokens takes its time and memory.
        model.compute_logits = _no_logits

    def run_captured_step(self, scheduler_output: Any, rows: tuple[Rows, ...]) -> Report:
        """Runs a step, which has `rows`, and reports what was written of earlier steps.

        On a GPU the step need not have run when this returns.
        """
        runner = self.model_runner
        sender = self._row_sender
        tokens = sum(part.count for part in rows)
        if sender is not None:
            sender.begin(tokens)
        try:
            self.execute_model(scheduler_output)
            # The runner waits for sample_tokens() now, which would copy tokens that nobody wants
            # to the host, and wait for the step to end.
            runner.execute_model_state = None
            if sender is None:
                return Report()
            # The runner reorders its batch, so only it knows whose row is whose.
            sender.send(in_order(rows, runner.input_batch.req_ids))
            return sender.writer.report()
        finally:
            if sender is not None:
                sender.capture.cancel()

    def finish_capture(self) -> Report:
        """Waits until something was written, and reports it; to be called while there is more."""
        if self._row_sender is None:
            return Report()
        return self._row_sender.finish()


class RowSender:
    """Sends this process's share of captured rows on their way."""

    def __init__(
        self, settings: CaptureSettings, share: Share, capture: Capture, device: torch.device
    ) -> None:
        self.capture = capture
        self._share = share
        self._transfer = transfer_from(device)
        self._dtype = settings.states_dtype
        row_width = width(self._dtype, settings.hidden_size)
        row_shape = (len(settings.capture_points), row_width // torch.bfloat16.itemsize)
        self._row_bytes = row_shape[0] * row_width
        most_rows = -(-settings.most_rows // share.writers)
        self._ring = Ring(row_shape, most_rows, settings.ring_bytes, self._transfer.new_buffer)
        self.writer = RowWriter(self._ring, settings.writer_threads)
        self._files: dict[str, RowFile] = {}
        self._own = range(0)

    def begin(self, tokens: int) -> None:
        """Before a step of so many tokens."""
        self._own = self._share.of(tokens)
        self.capture.begin(tokens, self._own)

    def send(self, rows: list[Rows]) -> None:
        """After a step: hands over its share of `rows`, which are in the order of the step."""
        if not self._own:
            return
        states_NLH = encode(self.capture.end(), self._dtype)
        try:
            # Files of earlier steps close when their last rows are written.
            self._files = {
                path: self._files.get(path) or RowFile(path)
                for path in {part.path for part in rows}
            }
        except OSError as error:
            self.writer.fail(f"cannot write to {error.filename}: {error.strerror}")
            return
        for begin in range(0, len(states_NLH), self._ring.rows_per_buffer):
            piece_NLH = states_NLH[begin : begin + self._ring.rows_per_buffer]
            buffer = self._ring.take()
            copied = self._transfer.copy(piece_NLH, buffer[: len(piece_NLH)])
            first = self._own.start + begin
            wanted = range(first, first + len(piece_NLH))
            self.writer.write(buffer, copied, section(rows, wanted, self._row_bytes), self._files)

    def finish(self) -> Report:
        """After the last step: what was written by now, of which there is something or no more."""
        # Files close when their last rows are written.
        self._files = {}
        return self.writer.report(wait=True)


def _no_logits(*_: Any) -> None:
    return None
