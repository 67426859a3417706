"""What every test shares: one thread per worker, a fixed seed, the data folder, and GPU tests only where a GPU is."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# Tests run side by side, one worker per core; more threads inside a worker would only get in each other's way.
torch.set_num_threads(1)

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip GPU tests where there is no GPU; start each test from the same seed."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of random tensors, to pass in wherever one is asked for."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def bough_data() -> Path:
    """The folder of third-party networks and properties."""
    folder = os.environ.get("BOUGH_DATA")
    if not folder:
        pytest.skip("set BOUGH_DATA to the shared data folder")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"BOUGH_DATA is not a folder: {path}")
    return path
