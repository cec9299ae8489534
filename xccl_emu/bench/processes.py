"""Jobs on all cores of this machine, each in a process of its own, as far as the memory goes; or on a Dask cluster."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Generic, TypeVar

from xccl_emu.errors import ConfigError, UnfinishedError, XcclEmuError
from xccl_emu.jit import cache

S = TypeVar("S")
T = TypeVar("T")
LOCAL = "local"
"""In place of a scheduler's address: a cluster of this machine, for as long as it is needed."""


@dataclass(frozen=True)
class ProcessJob(Generic[T]):
    """What a process is to run."""

    name: str
    run: Callable[[], T]
    """A function of a module, or a `functools.partial` of one: it is sent to the process."""
    bytes_needed: int
    """Memory that it touches, estimated."""


def on_processes(
    jobs: Sequence[ProcessJob[T]], free_bytes: int, workers: int | None = None, advice: str = "take --no-data, or less"
) -> Iterator[tuple[int, T]]:
    """The number of each job and its result, as it is done; jobs begin in order, as many at once as fit.

    There are as many ``workers`` as cores if nothing else is said; ``advice`` is for whom one of them was killed.

    Raises ConfigError, before any has begun, for a job that does not fit ``free_bytes`` by itself; UnfinishedError if
    the system kills a process, and when all others are done if jobs have failed.  To stop taking results ends
    all processes, and the end of this one, however it comes, is theirs.
    """
    if too_large := [job for job in jobs if job.bytes_needed > free_bytes]:
        job = max(too_large, key=lambda job: job.bytes_needed)
        need = f"needs about {job.bytes_needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"
        raise ConfigError(f"{job.name}: {need}; take --no-data, or less")
    cores = workers or len(os.sched_getaffinity(0))
    waiting, running = list(enumerate(jobs)), dict[Future[T], int]()
    failed: list[tuple[str, BaseException]] = []
    # Spawned: a fork of a process that has compiled code and mapped a pod is no clean start.
    pool = ProcessPoolExecutor(
        max(1, min(cores, len(jobs))), get_context("spawn"), initializer=_begin_worker,
        initargs=(os.getpid(), cache.listeners),
    )  # fmt: skip
    try:
        while waiting or running:
            free = free_bytes - sum(jobs[number].bytes_needed for number in running.values())
            while waiting and len(running) < cores and waiting[0][1].bytes_needed <= free:
                number, job = waiting.pop(0)
                with interrupts_held():
                    running[pool.submit(job.run)] = number
                free -= job.bytes_needed
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                why_not = done.exception()
                if isinstance(why_not, BrokenProcessPool):
                    raise why_not
                number = running.pop(done)
                if why_not is not None:
                    failed.append((jobs[number].name, why_not))
                else:
                    yield number, done.result()
    except BrokenProcessPool as error:
        what = "; ".join(jobs[number].name for number in running.values())
        why = "one of these processes was killed, perhaps for lack of memory"
        raise UnfinishedError(f"{what}: {why}; {advice}") from error
    finally:
        _end(pool)
    _raise_failed(failed, len(jobs))


def _raise_failed(failed: Sequence[tuple[str, BaseException]], total: int) -> None:
    """UnfinishedError that names the jobs that failed; what is no error of the emulator is raised as it is."""
    for name, error in failed:
        if not isinstance(error, (XcclEmuError, MemoryError)):
            error.add_note(f"in {name}")
            raise error
    if failed:
        lines = "".join(f"\n  {name}: {error or 'not enough memory'}" for name, error in failed)
        raise UnfinishedError(f"{len(failed)} of {total} failed:{lines}") from failed[0][1]


def on_dask(run: Callable[[S], T], items: Iterable[S], address: str) -> Iterator[T]:
    """Yield what ``run`` returns for each item, as it is done, on the cluster of a Dask scheduler or a local one.

    Its workers have this package.  Raises ConfigError if Dask is not installed or nobody answers there.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ConfigError(f"--dask {address}: needs Dask; install xccl_emu[dask]") from error
    local = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    try:
        client = Client(**local) if address == LOCAL else Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--dask {address}: no scheduler answers there ({error})") from error
    failed: list[tuple[str, BaseException]] = []
    with client:
        tasks = client.map(run, list(items), pure=False)
        for done in as_completed(tasks):
            why_not = done.exception()
            if why_not is None:
                yield done.result()
            else:
                failed.append((f"task {tasks.index(done) + 1}", why_not))
    _raise_failed(failed, len(tasks))


def in_parts(
    run: Callable[[S], T], items: Sequence[S], workers: int, dask: str | None = None
) -> Generator[T, None, None]:
    """Yield what ``run`` returns for each item, as it is done: in this process, in others, or on a cluster.

    Raises as `on_processes` and `on_dask` do.
    """
    if dask:
        yield from on_dask(run, items, dask)
    elif workers == 1:
        yield from map(run, items)
    else:
        jobs = [
            ProcessJob(f"part {number + 1} of {len(items)}", partial(run, item), 0) for number, item in enumerate(items)
        ]
        yield from (result for _, result in on_processes(jobs, 0, workers, advice="take these by themselves"))


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Start processes that never hear Ctrl-C, not even while they begin; this process hears it afterwards.

    To block it is not enough: another thread may take it, and Python handles it in the main one.  The alarm is how the
    command hears it after an import.
    """
    held, heard = (signal.SIGINT, signal.SIGALRM), list[int]()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    handlers = {}
    with contextlib.suppress(ValueError):  # in another thread, which handles none
        handlers = {number: signal.signal(number, lambda it, frame: heard.append(it)) for number in held}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(heard[0])


_PR_SET_PDEATHSIG = 1  # of prctl; Linux alone has it


def _begin_worker(parent: int, listeners: Sequence[Callable[[str], None]]) -> None:
    """Ctrl-C reaches every process; the one that has started the others ends them, and they end when it is gone.

    What a process compiles its own listeners hear.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    cache.listeners.extend(listeners)


def end_with(parent: int) -> None:
    """Kill this process when its parent has ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """End without waiting for what still runs: after Ctrl-C or an error nobody wants it."""
    processes = list((pool._processes or {}).values())  # the executor has no public way to end them
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
