"""What rows are compared with: rows of an earlier run, and a line that needs no emulator, alpha-beta.

Every published row whose bytes are known has such a line: a start-up and the bytes at the published rates.  The
start-ups are fitted to the very rows that they are scored on: one for each kind of operator, once for all tables; and
one for each kind and machine, refitted to each table, so as good as a line can be.  A model that is worse than the
first explains nothing that a line does not.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench.result import ALPHA_BETA, ONCE, Result, Wire
from xccl_emu.timing.fabric import OTHER_NODE, SAME_NODE, Fabric

_Row = tuple[Result, Wire]


def spread_us(fabric: Fabric, ranks: int, nbytes: float, *, write: bool = True) -> float:
    """Microseconds of bytes that a die has for all ranks evenly, itself too, at the rates within nodes and beyond."""
    near = min(ranks, fabric.dies_per_chip * fabric.chips_per_node) - 1
    shares = ((near, fabric.paths[SAME_NODE]), (ranks - 1 - near, fabric.paths[OTHER_NODE]))
    times = [n / ranks * nbytes / 1000 / (path.write if write else path.read).gb_s for n, path in shares]
    return sum(times) if fabric.within == "ports" else max(times)


def alpha_beta(results: Iterable[Result], name: str = ALPHA_BETA) -> Iterator[Result]:
    """The lines of results, of a bench that has the name of theirs and of the baseline, refitted or `ONCE`."""
    by_kind: dict[tuple[str, str], list[_Row]] = {}
    for one in results:
        if one.wire is not None and one.role in ("fit", "check"):
            of = "" if name == ONCE else one.machine
            by_kind.setdefault((one.wire.kind, of), []).append((one, one.wire))
    for (kind, _), rows in by_kind.items():
        alpha = _fitted(rows)
        note = f"start-up of {kind}, {alpha:.3g} us, fitted to these rows; the bytes at published rates"
        for one, wire in rows:
            us = wire.us + wire.starts * alpha
            value = wire.gib / (us * 1e-6) if wire.gib else us
            bare = replace(one, wrong=None, low=None, high=None)
            yield replace(bare, bench=f"{one.bench}, {name}", emulated=value, note=note)


def _fitted(rows: list[_Row]) -> float:
    """The start-up with the least squares of relative errors in time, at least 0."""
    above = below = 0.0
    for one, wire in rows:
        assert one.published
        took = wire.gib / one.published * 1e6 if wire.gib else one.published
        share = wire.starts / took
        above, below = above + share * (1 - wire.us / took), below + share * share
    return max(0.0, above / below)


# ---- the rows of an earlier run

Key = tuple[str, str, str]


def _key(bench: str, what: str, configuration: Mapping[str, object]) -> Key:
    return bench, what, json.dumps(configuration, sort_keys=True)


def read(path: Path) -> dict[Key, float | None]:
    """Emulated values of what `xccl-emu bench --json` wrote, by bench, name and configuration.

    Raises ConfigError for a file that cannot be read, or that holds something else.
    """
    try:
        rows = json.loads(path.read_text("utf-8"))["results"]
        return {_key(row["bench"], row["what"], row["configuration"]): row["emulated"] for row in rows}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"--against {path}: must be what xccl-emu bench --json wrote ({error!r})") from error


def moved(results: Iterable[Result], before: Mapping[Key, float | None], tolerance_percent: float) -> list[str]:
    """A line for each row that is off by more than the tolerance, is new, or is no longer there."""
    left, lines = dict(before), []
    for result in results:
        key = _key(result.bench, result.what, result.configuration)
        name = f"{result.bench}: {result.what}"
        if key not in left:
            lines.append(f"{name}: new, {result.emulated} {result.unit}")
            continue
        old, new = left.pop(key), result.emulated
        if old == new:
            continue
        percent = 100 * (new / old - 1) if old and new is not None else float("inf")
        if abs(percent) > tolerance_percent:
            lines.append(f"{name}: {old} -> {new} {result.unit}, {percent:+.2f} %")
    return lines + [f"{bench}: {what}: no longer there, was {left[bench, what, of]}" for bench, what, of in left]
