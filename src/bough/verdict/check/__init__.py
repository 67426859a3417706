"""The program behind `bough check`, to be read by whoever does not believe a verifier. Start at `checker.py`.

It imports how networks and properties are read (`bough.network`, `bough.problem`), and nothing that searches or bounds.
"""

from bough.verdict.check.checker import Outcome, Report, check

__all__ = ["Outcome", "Report", "check"]
