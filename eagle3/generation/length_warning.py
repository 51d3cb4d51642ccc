"""A warning of limits that drop most answers: the table at the end would tell hours later."""

from eagle3.generation.dialogue import DialogueRules
from eagle3.preparation.statistics import Statistics
from eagle3.progress import Progress

# Of so many, most are cut by no accident.
_TELLING_ANSWERS = 100


class LengthWarning:
    """Says that most answers were dropped for their length, where that is so, and what helps."""

    def __init__(self, rules: DialogueRules, progress: Progress) -> None:
        self._rules = rules
        self._progress = progress
        self._is_said = False

    def look(self, statistics: Statistics) -> None:
        """While the target writes: says it once."""
        if not self._is_said and statistics.answers >= _TELLING_ANSWERS:
            self._is_said = self.say(statistics, "first ")

    def say(self, statistics: Statistics, which: str) -> bool:
        """Says it of the `which` answers that are counted; False where there is nothing to say."""
        cut, rules = statistics.faults["length"], self._rules
        if rules.on_degenerate == "keep" or 2 * cut <= statistics.answers:
            return False
        brief = "; a target that thinks is asked not to with --reasoning drop"
        self._progress.say(
            f"WARNING: {cut:,} of the {which}{statistics.answers:,} answers had no end within "
            f"--max-tokens {rules.max_tokens:,} and --max-model-len {rules.max_model_len:,}, and "
            f"were dropped: raise both, with another --out{brief if rules.served.thinking else ''}"
        )
        return True
