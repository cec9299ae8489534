"""A send/recv job: a file between two dies, or random bytes from every die to a random other at once."""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.bench.memory import available_bytes
from xccl_emu.bench.sizes import parse_size
from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, GIB
from xccl_emu.protocols.sendrecv import SendRecv
from xccl_emu.runs.jobs import tables
from xccl_emu.runs.sendrecv import SendRecvRun


@dataclass
class SendRecvResult:
    """What the job measured; `wrong` counts bytes that did not arrive as they were sent."""

    wrong: int = 0
    pairs: int = 0
    nbytes: int = 0
    """Of one payload."""
    rounds: list[dict[str, Any]] = field(default_factory=list)
    """For each round: seconds, actions, instructions, bytes by engine."""
    options: dict[str, Any] = field(default_factory=dict)

    table = tables.of_transfers

    def closing(self) -> str:
        """How many bytes were wrong."""
        return f"#wrong {self.wrong}"


def run_sendrecv(options: SendRecvRun, stage: Any) -> SendRecvResult:
    """Send, receive, compare; ConfigError for a file that cannot be read or dies that the pod lacks."""
    payloads, pairs = _payloads(options)
    pod = Pod(CLOUDMATRIX384, order=options.order, policy=options.policy, seed=options.seed)
    comm = SendRecv(pod, slots=options.slots)
    buffers = [(pod.put(s, p), pod.alloc(t, p.size)) for (s, t), p in zip(pairs, payloads, strict=True)]
    result = SendRecvResult(pairs=len(pairs), nbytes=int(payloads[0].size))
    result.options = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()}
    for number in range(options.rounds):
        with stage(f"send and receive {number + 1}") as progress:
            result.rounds.append(_round(comm, buffers, options, number, progress))
        result.wrong += sum(_wrong(pod, target, p) for (_, target), p in zip(buffers, payloads, strict=True))
        for _, target in buffers:
            pod.view(target)[:] = 0
    return result


def _round(
    comm: SendRecv, buffers: list[tuple[Buffer, Buffer]], options: SendRecvRun, number: int, progress: Any
) -> dict[str, Any]:
    started = time.perf_counter()
    for source, target in buffers:
        comm.transfer(source, target, event_id=number + 1, cores=options.cores, path=options.path)
    stats = asdict(comm.run(progress))
    stats["wall_seconds"] = time.perf_counter() - started
    return stats


def _wrong(pod: Pod, target: Buffer, payload: NDArray[np.uint8]) -> int:
    return int(np.count_nonzero(pod.view(target) != payload))


def _payloads(options: SendRecvRun) -> tuple[list[NDArray[np.uint8]], list[tuple[int, int]]]:
    _check_together(options)
    rng, dies = np.random.default_rng(options.seed), CLOUDMATRIX384.n_dies
    nbytes = _size_of(options.file) if options.file else parse_size("--nbytes", options.nbytes or "1M")
    if not options.permutation:
        _check_fits(3 * nbytes)
        payload = _read(options.file) if options.file else rng.integers(0, 256, nbytes, dtype=np.uint8)
        source = 0 if options.source is None else options.source
        return [payload], [(source, dies - 1 if options.target is None else options.target)]
    _check_fits(dies * (3 * nbytes + options.slots * min(nbytes, options.cores << 16)))
    ring = rng.permutation(dies)  # each die sends to the next in a random circle, so never to itself
    pairs = [(int(s), int(t)) for s, t in zip(ring, np.roll(ring, -1), strict=True)]
    return [rng.integers(0, 256, nbytes, dtype=np.uint8) for _ in pairs], pairs


def _check_together(options: SendRecvRun) -> None:
    """Raises ConfigError for options that exclude each other."""
    if options.file and options.nbytes is not None:
        raise ConfigError(f"--nbytes {options.nbytes}: goes without --file, which gives the size")
    for name in ("file", "source", "target"):
        if options.permutation and getattr(options, name) is not None:
            raise ConfigError(f"--{name} {getattr(options, name)}: goes with two dies, not with --permutation")


def _size_of(path: Path) -> int:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ConfigError(f"--file {path}: cannot be read ({error.strerror})") from error
    if size == 0:
        raise ConfigError(f"--file {path}: is empty, there is nothing to send")
    return size


def _read(path: Path) -> NDArray[np.uint8]:
    try:
        return np.fromfile(path, np.uint8)
    except OSError as error:
        raise ConfigError(f"--file {path}: cannot be read ({error.strerror})") from error


def _check_fits(need: int) -> None:
    free = available_bytes()
    if need > free:
        raise CapacityError(f"the payloads need about {need / GIB:.1f} GiB, {free / GIB:.1f} GiB are free")
