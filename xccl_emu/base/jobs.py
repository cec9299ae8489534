"""Many independent jobs: in this process, in others on its cores, or on a Dask cluster; each is yielded as it is done.

All three are executors of `concurrent.futures`.  A job that fails, in whichever way, leaves the others alone, and a
signal keeps what is done (`take_all`).
"""

import contextlib
import ctypes
import math
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Any, ClassVar, Generic, NoReturn, TypeVar

from xccl_emu.base import early, free_memory
from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError, UnfinishedError, XcclEmuError
from xccl_emu.jit import cache

S = TypeVar("S")
T = TypeVar("T")
LOCAL = "local"
"""In place of a scheduler's address: a cluster of this machine, for as long as it is needed."""


@dataclass(frozen=True)
class Job(Generic[T]):
    """What is to be run, and its name for who is to know that it failed."""

    name: str
    run: Callable[[], T]
    """A function of a module, or a `functools.partial` of one, if it is sent to another process."""
    bytes_needed: int = 0
    """Memory that it touches, estimated."""


_FORESEEN = (XcclEmuError, MemoryError)
"""What a job may fail with; anything else is a bug of ours."""


@dataclass(frozen=True)
class EndedJob(Generic[T]):
    """A job that has ended: with a result, or with an error."""

    number: int
    """Place of the job among all."""
    job: Job[T]
    future: Future[T]

    @property
    def result(self) -> T:
        """Return its result; raises the error with which it failed."""
        return self.future.result()

    @property
    def failure(self) -> str:
        """Why it failed; empty if it did not."""
        error = self.future.exception()
        if self.bug is not None:
            return f"{type(error).__name__}: {error}"
        return "" if error is None else str(error) or "not enough memory"

    @property
    def bug(self) -> BaseException | None:
        """The error with which it failed, if nobody foresaw that."""
        error = self.future.exception()
        return None if isinstance(error, _FORESEEN) else error


@dataclass(frozen=True)
class Stopped:
    """Why not all jobs have a result."""

    why: str
    code: int = 0
    """Exit code of the signal that came; 0 where jobs failed or a process was killed."""
    killed: bool = False
    """Whether that is a process that was killed."""
    bug: BaseException | None = None
    """The first error of a job that nobody foresaw."""

    def end(self) -> NoReturn:
        """Raise what ends a command for it: the signal, the error that nobody foresaw, or UnfinishedError."""
        early.raise_by(self.code)
        raise self.bug or UnfinishedError(self.why)


# ---- running


def run_jobs(
    jobs: Sequence[Job[T]], workers: int | None = None, dask: str | None = None, free_bytes: float = math.inf,
    advice: str = "take less, or these by themselves",
) -> Generator[EndedJob[T], None, None]:  # fmt: skip
    """Yield each job when it has ended; jobs begin in order, as many at once as there are workers and as fit.

    Parameters
    ----------
    workers: processes, by default one for each core, among which the free memory is divided (`available_bytes`); with
        1, or as many for a single job, it is this process.
    dask: address of a scheduler, or `LOCAL`, on whose cluster they run instead; its workers have this package.
    free_bytes: what jobs that run at the same time may need together.
    advice: what to do about a job that does not fit, or whose process was killed.

    Raises ConfigError, before any has begun, for a job that does not fit by itself, and where Dask is not installed or
    nobody answers; UnfinishedError if a process is killed; what a job raises that is no `Exception`.  To stop taking
    jobs ends all processes, and the end of this one, however it comes, is theirs.
    """
    if too_large := [job for job in jobs if job.bytes_needed > free_bytes]:
        job = max(too_large, key=lambda job: job.bytes_needed)
        need = f"needs about {job.bytes_needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"
        raise ConfigError(f"{job.name}: {need}; {advice}")
    waiting, running = list(enumerate(jobs)), dict[Future[T], int]()
    with _executor(len(jobs), workers, dask) as (executor, at_once):
        try:
            while waiting or running:
                free = free_bytes - sum(jobs[number].bytes_needed for number in running.values())
                while waiting and len(running) < at_once and waiting[0][1].bytes_needed <= free:
                    number, job = waiting.pop(0)
                    running[executor.submit(job.run)] = number
                    free -= job.bytes_needed
                done = wait(running, return_when=FIRST_COMPLETED).done
                for future in sorted(done, key=lambda one: (_is_broken(one), running[one])):
                    _check(future, jobs[running[future]].name)
                    number = running.pop(future)
                    yield EndedJob(number, jobs[number], future)
        except BrokenExecutor as error:
            what = str(error) if dask else "; ".join(jobs[number].name for number in running.values())
            why = "one of these processes was killed, perhaps for lack of memory"
            raise UnfinishedError(f"{what}: {why}; {advice}") from error


def _is_broken(future: Future[Any]) -> bool:
    """Return whether its process was killed: such jobs end the run, so what is done comes before them."""
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)


def _check(future: Future[Any], name: str) -> None:
    """Raise what is no failure of a job by itself: a process that was killed, and what ends one, as `sys.exit`."""
    error = None if future.cancelled() else future.exception()
    if future.cancelled() or type(error).__name__ == "KilledWorker":  # Dask gives the job up, or the scheduler is gone
        raise BrokenExecutor(name) from error
    if error is None or isinstance(error, _FORESEEN):
        return
    error.add_note(f"in {name}")
    if isinstance(error, BrokenExecutor) or not isinstance(error, Exception) or early.heard:  # a signal became it
        raise error


def in_parts(
    run: Callable[[S], T], items: Sequence[S], workers: int, dask: str | None = None
) -> Generator[EndedJob[T], None, None]:
    """Run the parts of one large job, as `run_jobs` does."""
    jobs = [Job(f"part {number} of {len(items)}", partial(run, item)) for number, item in enumerate(items, 1)]
    return run_jobs(jobs, workers, dask)


# ---- keeping what is done


def take_all(done: Generator[EndedJob[T], None, None], take: Callable[[EndedJob[T]], bool | None]) -> Stopped | None:
    """Give each job that has ended to ``take``, until that returns True; say why any has no result, if one has none.

    That is a signal, which is not raised (`early.put_off`), a killed process, or jobs that failed: the others are done
    nevertheless.
    """
    failed, bug, total = list[str](), None, 0
    with contextlib.closing(done):
        try:
            for one in done:
                total, bug = total + 1, bug or one.bug
                failed += [f"\n  {one.job.name}: {one.failure}"] if one.failure else []
                if take(one):
                    break
        except BaseException as error:
            code = early.put_off(error)
            if not code and not isinstance(error, UnfinishedError):
                raise
            return Stopped(early.SAID.get(code, str(error)), code, not code, bug)
    return Stopped(f"{len(failed)} of {total} failed:{''.join(failed)}", bug=bug) if failed else None


@dataclass
class Collected(Generic[T]):
    """What has become of jobs."""

    done: dict[int, T] = field(default_factory=dict)
    """Results, by numbers of jobs."""
    failed: list[EndedJob[T]] = field(default_factory=list)
    stopped: Stopped | None = None

    def end(self) -> None:
        """Raise why some have no result, if that is so; where none has one and all failed in the same way, that."""
        if self.stopped is None:
            return
        if not self.done and not self.stopped.code and len({type(one.future.exception()) for one in self.failed}) == 1:
            self.failed[0].future.result()
        self.stopped.end()


def collect(jobs: Sequence[Job[T]], note: Callable[[EndedJob[T], int], object], **where: Any) -> Collected[T]:
    """Keep the results of `run_jobs`; ``note`` gets each job that has ended, and how many have."""
    found = Collected[T]()

    def take(one: EndedJob[T]) -> None:
        if one.failure:
            found.failed.append(one)
        else:
            found.done[one.number] = one.result
        note(one, len(found.done) + len(found.failed))

    found.stopped = take_all(run_jobs(jobs, **where), take)
    return found


@dataclass(kw_only=True)
class Gathered(w.Printed):
    """Counts of the parts so far, and how it ended; derive with fields for what is counted."""

    COUNTED: ClassVar[tuple[str, ...]]
    """The fields that are added up."""
    seconds: Annotated[w.Seconds, w.As(digits=1)] = 0.0
    stopped: w.Stopped = ""
    killed: w.Killed = False
    ended: Stopped | None = None
    """A signal, a killed process, or parts that failed."""

    @property
    def interrupted(self) -> bool:
        """Was it stopped by Ctrl-C or SIGTERM?"""
        return self.ended is not None and self.ended.code != 0

    def raise_bug(self) -> None:
        """Raise the first error of a part that nobody foresaw, if there is one."""
        if self.ended is not None and self.ended.bug is not None:
            raise self.ended.bug

    def add(self, other: Any) -> None:
        """Count what another part came to."""
        for name in self.COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def gather(
        self, parts: Generator[EndedJob[Any]], enough: Callable[[], bool], progress: Callable[[Any], None] | None
    ) -> None:
        """Add parts as they are done, until it is ``enough``; note what stops it, as `take_all` says."""
        started = time.perf_counter()

        def take(part: EndedJob[Any]) -> bool:
            if not part.failure:
                self.add(part.result)
            self.seconds = time.perf_counter() - started
            if progress is not None:
                progress(self)
            return enough()

        if ended := take_all(parts, take):
            self.ended, self.stopped, self.killed = ended, ended.why, ended.killed

    def late(self, seconds: float | None) -> bool:
        """Has it taken longer than it may?  Then that is why it came to no end."""
        if seconds is None or self.seconds <= seconds:
            return False
        self.stopped = f"more than {seconds:g} seconds"
        return True


# ---- where jobs run


@contextlib.contextmanager
def _executor(total: int, workers: int | None, dask: str | None) -> Iterator[tuple[Executor, int]]:
    """Yield where jobs run, and how many are handed over at once; ends what it has begun, without waiting for jobs."""
    if dask:
        with _client(dask) as client:
            client.run(_begin_dask_worker)
            yield client.get_executor(pure=False), total
    elif workers is not None and min(workers, total) <= 1:
        yield _Here(), 1
    else:
        at_once = max(1, min(workers or len(os.sched_getaffinity(0)), total))
        pool = _Processes(at_once)
        try:
            yield pool, at_once
        finally:
            pool.end()


def _client(address: str) -> Any:
    """A client of the scheduler; ConfigError where Dask is not installed or nobody answers."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError(f"--dask {address}: needs Dask; install xccl_emu[dask]") from error
    local = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    try:
        return Client(**local) if address == LOCAL else Client(address, timeout="10s")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--dask {address}: no scheduler answers there ({error})") from error


class _Here(Executor):
    """Runs what is submitted at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Run it; a signal is raised here and now."""
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that are spawned: a fork of one that has compiled code and mapped a pod is no clean start."""

    def __init__(self, workers: int) -> None:
        begin = (os.getpid(), cache.listeners, free_memory.available_bytes() // workers)
        super().__init__(workers, get_context("spawn"), initializer=_begin_worker, initargs=begin)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Hand it over, and start a process for it if there is none."""
        with interrupts_held():
            return super().submit(fn, *args, **named)

    def end(self) -> None:
        """End without waiting for what still runs: after Ctrl-C or an error nobody wants it."""
        processes = list((self._processes or {}).values())  # the executor has no public way to end them
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


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


def _begin_worker(parent: int, listeners: Sequence[Callable[[str], None]], nbytes: int) -> None:
    """Ctrl-C reaches every process; the one that has started the others ends them, and they end when it is gone.

    What a process compiles its own listeners hear.  It has a part of the memory.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    cache.listeners.extend(listeners)
    free_memory.plan_with(nbytes)


def _begin_dask_worker(dask_worker: Any) -> None:
    """Each thread of a worker of a cluster has a part of the memory that the cluster gives the worker, if it says."""
    if nbytes := dask_worker.memory_manager.memory_limit:
        free_memory.plan_with(nbytes // dask_worker.state.nthreads)


def end_with(parent: int) -> None:
    """Kill this process when its parent has ended."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)
