"""The whole of a preparation, from what the user asks to the report."""

from eagle3.chat.remote_code import describe_code, remote_code
from eagle3.preparation.bar import reading_bar
from eagle3.preparation.collecting import Collector, PreparationReport
from eagle3.preparation.dataset import DatasetWriter
from eagle3.preparation.request import PreparationRequest
from eagle3.preparation.sources import find_files, read_chunks
from eagle3.preparation.target import read_target
from eagle3.preparation.tokenizing import tokenize_chunks
from eagle3.progress import Progress


def prepare(request: PreparationRequest, progress: Progress) -> PreparationReport:
    """Reads all data, makes samples and writes them to a new folder.

    Raises InputError where nothing could be prepared, and StoreError where the folder cannot be
    written; nothing stays then.
    """
    assert request.data is not None
    target = read_target(request.model, request.max_model_len)
    announce_code(request, progress)
    files = find_files(request.data)
    try:
        with (
            DatasetWriter(request.out) as writer,
            reading_bar(sum(path.stat().st_size for path in files), limit=request.limit) as bar,
        ):
            collector = Collector(request, target, writer)
            chunks = collector.counted(read_chunks(files, request.limit))
            for chunk in tokenize_chunks(chunks, request, target):
                collector.take(chunk)
                bar.update(
                    bytes_read=chunk.bytes_read,
                    rows=collector.statistics.rows.total(),
                    tokens=collector.statistics.tokens,
                )
            return collector.commit(request.data.name)
    except KeyboardInterrupt:
        progress.say("out: nothing was kept; the same command begins anew")
        raise


def announce_code(request: PreparationRequest, progress: Progress) -> None:
    """Says what code of the model will run, where that was allowed."""
    if request.trust_remote_code:
        code = remote_code(request.model)
        progress.say(f"running the model's own code: {describe_code(code) or 'it has none'}")
