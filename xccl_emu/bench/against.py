"""The rows of a bench with the rows of an earlier run: what has moved, for repeated runs."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from xccl_emu.bench.result import Result
from xccl_emu.errors import ConfigError

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
