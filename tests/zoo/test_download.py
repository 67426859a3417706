"""Downloads: whole or not at all, continued after a cut, from the next mirror, and one sentence where nothing helps."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from tests.zoo.mirror import Mirror, serving

from bough.errors import BadInput, OutputError
from bough.zoo import download
from bough.zoo.download import RemoteFile, fetch

CONTENTS = bytes(range(256)) * 1024  # four chunks
FILE = RemoteFile("images.bin", len(CONTENTS), hashlib.sha256(CONTENTS).hexdigest())
NOBODY = "http://127.0.0.1:9/"  # the port of "discard", where nothing listens


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with serving(Mirror({FILE.name: CONTENTS})) as one:
        yield one


def part(folder: Path) -> Path:
    return folder / f"{FILE.name}.part"


def failure(folder: Path, *mirrors: str) -> str:
    """The sentence of a download that has to fail, with nothing under the final name."""
    with pytest.raises(BadInput) as caught:
        fetch(FILE, mirrors, folder)
    assert not (folder / FILE.name).exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_download_into_a_new_folder_with_progress(tmp_path: Path, mirror: Mirror) -> None:
    reports: list[tuple[str, int, int]] = []
    folder = tmp_path / "a" / "b"
    path = fetch(FILE, (mirror.url,), folder, lambda *news: reports.append(news))
    assert path == folder / FILE.name
    assert path.read_bytes() == CONTENTS
    assert [each.name for each in folder.iterdir()] == [FILE.name]
    assert reports[-1] == (FILE.name, FILE.size, FILE.size)
    assert [done for _, done, _ in reports] == sorted({done for _, done, _ in reports})
    assert len(reports) == 4


def test_what_is_there_is_not_asked_for(tmp_path: Path, mirror: Mirror) -> None:
    fetch(FILE, (mirror.url,), tmp_path)
    fetch(FILE, (mirror.url,), tmp_path)
    assert len(mirror.requests) == 1


def test_a_part_is_continued(tmp_path: Path, mirror: Mirror) -> None:
    part(tmp_path).write_bytes(CONTENTS[:1000])
    progress: list[int] = []
    path = fetch(FILE, (mirror.url,), tmp_path, lambda _, done, __: progress.append(done))
    assert path.read_bytes() == CONTENTS
    assert mirror.requests == [(FILE.name, "bytes=1000-")]
    assert progress[0] > 1000
    assert not part(tmp_path).exists()


def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    part(tmp_path).write_bytes(CONTENTS)
    assert fetch(FILE, (NOBODY,), tmp_path).read_bytes() == CONTENTS


def test_a_server_without_ranges_starts_again(tmp_path: Path, mirror: Mirror) -> None:
    mirror.ranges = False
    part(tmp_path).write_bytes(b"x" * 1000)
    assert fetch(FILE, (mirror.url,), tmp_path).read_bytes() == CONTENTS


@pytest.mark.parametrize("length", [True, False])
def test_a_cut_connection_is_taken_up_again(tmp_path: Path, mirror: Mirror, length: bool) -> None:
    mirror.cuts, mirror.length = [100_000, 5], length
    assert fetch(FILE, (mirror.url,), tmp_path).read_bytes() == CONTENTS
    assert [byte_range for _, byte_range in mirror.requests] == [None, "bytes=100000-", "bytes=100005-"]


def test_a_cut_keeps_its_bytes_for_the_next_call(tmp_path: Path, mirror: Mirror) -> None:
    mirror.cuts = [1000, 0]
    sentence = failure(tmp_path, mirror.url)
    assert "the connection was cut" in sentence
    assert "continues after the 1,000 bytes" in sentence
    assert part(tmp_path).read_bytes() == CONTENTS[:1000]
    assert fetch(FILE, (mirror.url,), tmp_path).read_bytes() == CONTENTS
    assert mirror.requests[-1] == (FILE.name, "bytes=1000-")


def test_a_server_that_always_cuts_is_given_up(tmp_path: Path, mirror: Mirror) -> None:
    mirror.ranges, mirror.cuts = False, [1000] * 50
    assert "the connection was cut" in failure(tmp_path, mirror.url)
    assert len(mirror.requests) == 2
    mirror.ranges, mirror.requests = True, []
    assert "the connection was cut" in failure(tmp_path, mirror.url)
    assert len(mirror.requests) == download._TRIES


def test_wrong_contents_are_deleted(tmp_path: Path, mirror: Mirror) -> None:
    mirror.files[FILE.name] = CONTENTS[::-1]
    sentence = failure(tmp_path, mirror.url)
    assert "checksum is wrong" in sentence
    assert "deleted" in sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rubbish", [b"x" * 1000, b"x" * len(CONTENTS), b"x" * 2 * len(CONTENTS)])
def test_a_rotten_part_does_not_last(tmp_path: Path, mirror: Mirror, rubbish: bytes) -> None:
    part(tmp_path).write_bytes(rubbish)
    assert "deleted" in failure(tmp_path, mirror.url)
    assert fetch(FILE, (mirror.url,), tmp_path).read_bytes() == CONTENTS


def test_the_second_mirror_serves(tmp_path: Path, mirror: Mirror) -> None:
    with serving(Mirror({FILE.name: CONTENTS[::-1]})) as liar, serving(Mirror({})) as empty:
        path = fetch(FILE, (NOBODY, empty.url, liar.url, mirror.url), tmp_path)
    assert path.read_bytes() == CONTENTS
    assert mirror.requests == [(FILE.name, None)]


def test_the_second_mirror_continues_what_the_first_began(tmp_path: Path, mirror: Mirror) -> None:
    with serving(Mirror({FILE.name: CONTENTS}, cuts=[1000, 0])) as first:
        assert fetch(FILE, (first.url, mirror.url), tmp_path).read_bytes() == CONTENTS
    assert mirror.requests == [(FILE.name, "bytes=1000-")]


def test_a_log_in_page_does_not_cost_the_part(tmp_path: Path) -> None:
    part(tmp_path).write_bytes(CONTENTS[:1000])
    with serving(Mirror({FILE.name: b"<html>pay first</html>"}, ranges=False)) as hotel:
        assert f"it has 22 bytes there instead of {FILE.size:,}" in failure(tmp_path, hotel.url)
    assert part(tmp_path).read_bytes() == CONTENTS[:1000]


def test_another_range_is_refused(tmp_path: Path, mirror: Mirror) -> None:
    part(tmp_path).write_bytes(CONTENTS[:1000])
    mirror.shift, mirror.length = -10, False
    assert "another range" in failure(tmp_path, mirror.url)
    assert part(tmp_path).read_bytes() == CONTENTS[:1000]


def test_no_connection_is_one_sentence_with_a_way_out(tmp_path: Path) -> None:
    with serving(Mirror({})) as empty:
        sentence = failure(tmp_path, NOBODY, empty.url)
    assert f"cannot download {NOBODY}{FILE.name} (Connection refused)" in sentence
    assert f"{empty.url}{FILE.name} (HTTP status 404)" in sentence
    assert sentence.endswith(f"or put {FILE.name} into {tmp_path}")
    assert not list(tmp_path.iterdir())


def test_an_address_that_is_none(tmp_path: Path) -> None:
    assert "unknown url type" in failure(tmp_path, "nowhere/")


def test_a_folder_that_cannot_be_written(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match=rf"cannot write .*file/{FILE.name}\.part: .*; set BOUGH_DATA"):
        fetch(FILE, (mirror.url,), tmp_path / "file")


def test_what_breaks_off_in_between_stays_a_part(tmp_path: Path, mirror: Mirror) -> None:
    def stop(_: str, done: int, __: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(FILE, (mirror.url,), tmp_path, stop)
    assert [each.name for each in tmp_path.iterdir()] == [part(tmp_path).name]
    assert CONTENTS.startswith(part(tmp_path).read_bytes())
    assert fetch(FILE, (mirror.url,), tmp_path).read_bytes() == CONTENTS


def test_one_download_at_a_time(tmp_path: Path, mirror: Mirror) -> None:
    threads = [Thread(target=fetch, args=(FILE, (mirror.url,), tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / FILE.name).read_bytes() == CONTENTS
    assert mirror.requests == [(FILE.name, None)]
