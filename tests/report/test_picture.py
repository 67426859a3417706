"""The counterexample picture: written in both formats, for grey and colour, the same twice, refused with a reason."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bough.errors import BadInput, OutputError
from bough.report.picture import Caption, counterexample_picture

CAPTION = Caption("ring", "frame", 0.05)
SIGNATURES = {".png": b"\x89PNG", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", [".png", ".svg"])
@pytest.mark.parametrize("channels", [1, 3])
def test_picture_is_written_and_repeats(tmp_path: Path, suffix: str, channels: int) -> None:
    rng = np.random.default_rng(0)
    image = rng.random((channels, 6, 5))
    near = np.clip(image + rng.uniform(-0.05, 0.05, image.shape), 0, 1)
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    counterexample_picture(first, image, near, CAPTION)
    counterexample_picture(second, image, near, CAPTION)
    assert first.read_bytes().startswith(SIGNATURES[suffix])
    assert 5_000 < first.stat().st_size < 500_000
    assert first.read_bytes() == second.read_bytes()


def test_no_difference_is_drawn_too(tmp_path: Path) -> None:
    image = np.full((1, 4, 4), 0.5)
    counterexample_picture(tmp_path / "same.png", image, image, Caption("cost in $", "x_1$", 0.0))
    assert (tmp_path / "same.png").stat().st_size > 0


@pytest.mark.parametrize("shape", [(4, 4), (2, 4, 4), (1, 1, 4, 4)])
def test_other_shapes_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="channels"):
        counterexample_picture(tmp_path / "p.png", np.zeros(shape), np.zeros(shape), CAPTION)


def test_unlike_shapes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="do not belong together"):
        counterexample_picture(tmp_path / "p.png", np.zeros((1, 4, 4)), np.zeros((1, 4, 5)), CAPTION)


def test_other_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"\.png or \.svg"):
        counterexample_picture(tmp_path / "p.jpg", np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), CAPTION)


def test_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        counterexample_picture(tmp_path / "none" / "p.png", np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), CAPTION)


def test_matplotlib_is_imported_only_to_draw() -> None:
    check = "import sys, bough.report.picture; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
