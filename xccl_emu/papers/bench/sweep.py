"""Sweeps over EP degree and batch: every point a layer on a pod of its own, in processes or on a Dask cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Job
from xccl_emu.base.stage import silent
from xccl_emu.papers.bench.layers import CORES, Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

AXES = ("ep", "batch")


@dataclass(frozen=True)
class SweepPoint:
    """One layer of a sweep."""

    bench: str
    """Its name, and the name of the case whose layer it is."""
    ranks: int
    tokens: int
    cores: int = CORES
    setting: Setting = DEFAULT

    @property
    def layer(self) -> Layer:
        """Return what is run."""
        return Layer(self.ranks, self.tokens, cores=self.cores)

    @property
    def what(self) -> str:
        """Its name."""
        return f"EP{self.ranks}, batch {self.tokens}"

    @property
    def bytes_needed(self) -> int:
        """Memory that it touches, estimated."""
        return self.layer.bytes_needed(self.setting.data)


def parse_axes(words: Sequence[str]) -> dict[str, list[int]]:
    """Values of each axis from such as ``ep=8:768`` (doubling, and the end) or ``batch=1,60,128``.

    Raises ConfigError, naming the word, for an unknown axis, one that comes twice, and values that are no numbers.
    """
    axes: dict[str, list[int]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if name not in AXES or name in axes:
            must = f"must be {' and '.join(f'{axis}=FROM:TO' for axis in AXES)}, each once"
            raise ConfigError(f"--sweep {word}: {must}")
        axes[name] = _values(word, values)
    return axes


def _values(word: str, values: str) -> list[int]:
    ends = values.split(":")
    numbers = ends if len(ends) == 2 else values.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise ConfigError(f"--sweep {word}: must be FROM:TO, or values with commas between them, whole and above 0")
    if len(ends) != 2:
        return sorted({int(number) for number in numbers})
    first, last = int(ends[0]), int(ends[1])
    if last < first:
        raise ConfigError(f"--sweep {word}: ends before it begins")
    return sorted({last, *(first << i for i in range(64) if first << i <= last)})


def points(bench: str, axes: dict[str, list[int]], cores: int, setting: Setting) -> list[SweepPoint]:
    """Every EP degree with every batch, the long ones first, so that no process works alone at the end."""
    degrees, batches = axes.get("ep", [128]), axes.get("batch", [128])
    if not 2 <= degrees[0] <= degrees[-1] <= 768:
        raise ConfigError(f"--sweep ep={degrees[0]}:{degrees[-1]}: must be 2 to 768, the dies of a pod")
    quiet = replace(setting, stage=silent)
    made = [SweepPoint(bench, ep, batch, cores, quiet) for ep, batch in product(degrees, batches)]
    return sorted(made, key=lambda point: -point.ranks * point.tokens)


def run_point(point: SweepPoint) -> list[Result]:
    """Run one point, in any process: latency of dispatch and of combine."""
    timed, shape = time_layer(point.setting, point.layer, point.bench), point.layer.shape | point.setting.fabric_words
    return [*point.setting.explained(point.bench, timed.rows(point.setting, point.bench, point.what, shape))]


def jobs(made: Iterable[SweepPoint]) -> list[Job[list[Result]]]:
    """The points as jobs."""
    return [Job(f"--sweep, {point.what}", partial(run_point, point), point.bytes_needed) for point in made]


def in_order(results: Iterable[list[Result]]) -> list[Result]:
    """Sort by EP degree and batch."""
    done = sorted(results, key=lambda pair: (int(pair[0].configuration["ranks"]), int(pair[0].configuration["tokens"])))
    return [result for pair in done for result in pair]
