"""What the user asks of a preparation."""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

LongPolicy = Literal["drop", "split", "truncate"]
HistoryPolicy = Literal["split", "last", "refuse"]
ReasoningPolicy = Literal["keep", "drop"]


@dataclass(frozen=True)
class PreparationRequest:
    """One field an option of the command; all paths are absolute.

    `data` None: there are no rows to read, the target writes conversations itself.

    `form` None: told by the columns of each row. `max_model_len` None: 2,048 tokens, or what the
    target can take if that is less. `limit` None: all rows. `date` is today for the template.
    """

    data: Path | None
    model: Path
    out: Path
    form: str | None = None
    reasoning: ReasoningPolicy = "keep"
    history: HistoryPolicy = "split"
    long: LongPolicy = "drop"
    max_model_len: int | None = None
    validation_share: float = 0.0
    seed: int = 0
    limit: int | None = None
    workers: int = 1
    date: datetime.date | None = None
    trust_remote_code: bool = False
    html: bool = False
    show: int = 0
