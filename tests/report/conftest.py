"""What the tests of the page share: a headless browser, started once for each of their files."""

from collections.abc import Iterator

import pytest
from tests.report.browser import Browser, find_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Skips where there is none."""
    command = find_browser()
    if command is None:
        pytest.skip("there is no Chromium here: apt-get install chromium, or name one in BOUGH_BROWSER")
    with Browser(command, tmp_path_factory.mktemp("profile")) as browser:
        yield browser
