"""Lines of Markdown are short enough to be read beside code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST = 120  # characters of a line
FENCE = re.compile(r"\s*(```|~~~)")
TABLE_ROW = re.compile(r"\s*\|")
ONE_LINK = re.compile(r"\s*([-*+] |\d+\. )?(!?\[[^\]]*\]\([^)\s]*\)|<?https?://\S+)[.,;:)]*$")
SKIPPED_FOLDERS = {"node_modules", "site", "build", "dist", "device-packages"}  # made or installed


def pages() -> list[Path]:
    """Every Markdown file of the repository, by its path from the root."""
    paths = (page.relative_to(ROOT) for page in ROOT.rglob("*.md"))
    return sorted(p for p in paths if not any(name in SKIPPED_FOLDERS or name.startswith(".") for name in p.parts))


def overlong(text: str) -> Iterator[int]:
    """Numbers of the lines that are too long, outside of code blocks, tables and single links."""
    in_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            in_code = not in_code
        elif not (in_code or len(line) <= LONGEST or TABLE_ROW.match(line) or ONE_LINK.match(line)):
            yield number


@pytest.mark.parametrize("page", pages(), ids=str)
def test_lines_are_short(page: Path) -> None:
    assert not list(overlong((ROOT / page).read_text(encoding="utf-8")))


def test_what_counts_as_too_long() -> None:
    words = "word " * 30
    link = f"[a link](https://example.org/{'a' * 120})"
    assert list(overlong(f"{words}\n")) == [1]
    assert list(overlong(f"{words}{link}\n")) == [1]
    assert not list(overlong(f"| {words} |\n- {link}\n{link}.\n```sh\n{words}\n```\n"))
