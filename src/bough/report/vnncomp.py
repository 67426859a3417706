"""Results in the competition's form: one word, and for `sat` the point."""

from bough.verdict import counterexample
from bough.verdict.result import Result

WORDS = {"verified": "unsat", "falsified": "sat", "timeout": "timeout", "unknown": "unknown"}


def as_text(result: Result) -> str:
    """The contents of a competition result file."""
    text = WORDS[result.verdict.value] + "\n"
    return text if result.counterexample is None else text + counterexample.as_text(result.counterexample)
