"""Where images are tried: in this process, or in several others that each read the network once."""

import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import torch

from bough.api import LoadedNetwork, load_network
from bough.errors import BoughError
from bough.zoo.shipped import network_path
from bough.zoo.table import Surroundings
from bough.zoo.trial import Recipe, Told, Tried, try_image

Key = tuple[int, str]  # an image, and the difficulty asked for


class LostWorker(BoughError):
    """A process ended without an answer."""


class AbstractWorkers(ABC):
    """Takes images, and hands back what was tried as each is done."""

    jobs: int

    @property
    @abstractmethod
    def busy(self) -> Collection[Key]:
        """What was started and is not handed back yet."""

    @abstractmethod
    def start(self, image: int, around: Surroundings, asked: str) -> None:
        """Begin with an image."""

    @abstractmethod
    def finished(self) -> list[Tried]:
        """Wait until something is done."""

    @abstractmethod
    def stop(self) -> None:
        """End what is at work."""


class Here(AbstractWorkers):
    """This process, which works while it is waited for."""

    jobs = 1

    def __init__(self, loaded: LoadedNetwork, recipe: Recipe, told: Told) -> None:
        self._loaded, self._recipe, self._told = loaded, recipe, told
        self._started: dict[Key, Surroundings] = {}

    @property
    def busy(self) -> Collection[Key]:
        """As above."""
        return self._started

    def start(self, image: int, around: Surroundings, asked: str) -> None:
        """Remember the image."""
        self._started[image, asked] = around

    def finished(self) -> list[Tried]:
        """Do the work."""
        started, self._started = self._started, {}
        return [
            try_image(self._loaded, self._recipe, image, around, asked, self._told)
            for (image, asked), around in started.items()
        ]

    def stop(self) -> None:
        """Nothing goes on by itself."""


class Processes(AbstractWorkers):
    """Processes of their own. They are started afresh, not forked: a copy of a process with threads may hang."""

    def __init__(self, jobs: int, recipe: Recipe, told: Told) -> None:
        self.jobs, self._recipe, self._told = jobs, recipe, told
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin)
        self._started: dict[Key, Future[Tried]] = {}

    @property
    def busy(self) -> Collection[Key]:
        """As above."""
        return self._started

    def start(self, image: int, around: Surroundings, asked: str) -> None:
        """Hand the image to the pool."""
        try:
            with _deaf():
                self._started[image, asked] = self._pool.submit(_try_there, self._recipe, image, around, asked)
        except BrokenProcessPool:
            raise _lost() from None

    def finished(self) -> list[Tried]:
        """The answers that are there; a process that is lost shows when there are none."""
        while not wait(self._started.values(), timeout=1.0, return_when=FIRST_COMPLETED).done:
            self._told(f"at work on images {', '.join(str(image) for image, _ in self._started)}")
        done = [self._started.pop(key) for key, future in list(self._started.items()) if future.done()]
        answers = [future.result() for future in done if not isinstance(future.exception(), BrokenProcessPool)]
        if not answers:
            raise _lost()
        return answers

    def stop(self) -> None:
        """End the processes, those at work, too: a search would go on for as long as it may take."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._started:
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()


def _lost() -> LostWorker:
    return LostWorker("a process was lost, as a rule because memory ran out; go on with fewer --jobs")


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started now do not hear Ctrl-C either, not even while they load their libraries."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that keeps the log, which ends these
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that was killed cannot end those it started; they have to see to it themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@lru_cache(maxsize=1)
def _network(name: str) -> LoadedNetwork:
    return load_network(network_path(Path(name)))


def _try_there(recipe: Recipe, image: int, around: Surroundings, asked: str) -> Tried:
    return try_image(_network(recipe.network), recipe, image, around, asked)
