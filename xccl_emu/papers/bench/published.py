"""The published numbers (`published.toml`), each with its unit, its source, and what it may be used for."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of

ROLES = ("input", "fit", "check", "shown", "exact")
"""Put in as it is; free constants may be fitted to it; compared and scored; printed with it; must come out exactly."""

RELATIONS = ("=", "<", ">")
"""Relations of an emulated value to the published one: equal up to the error, below it, or above it."""


@dataclass(frozen=True)
class Published:
    """One published number."""

    measurement: str
    what: str
    value: float
    unit: str
    role: str
    """One of `ROLES`."""
    source: str
    """Paper and section, table or figure."""
    relation: str = "="
    """One of `RELATIONS`."""
    kind: str = ""
    """For a latency: whose it is, and whether the launch is in it."""
    machine: str = "CloudMatrix384"
    """Name of the fabric that it is of."""

    def __post_init__(self) -> None:
        here = f"{self.measurement}, {self.what}"
        if self.role not in ROLES:
            raise ConfigError(f"role={self.role!r} of {here}: must be one of {', '.join(ROLES)}")
        if self.relation not in RELATIONS:
            raise ConfigError(f"relation={self.relation!r} of {here}: must be one of {' '.join(RELATIONS)}")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise ConfigError(f"value={self.value!r} of {here}: must be a number")


@cache
def all_rows() -> tuple[Published, ...]:
    """Everything that was published, in the order of the file."""
    text = files("xccl_emu.papers.bench").joinpath("published.toml").read_text("utf-8")
    return tuple(row for measurement in tomllib.loads(text)["measurement"] for row in _rows_of(measurement))


def _rows_of(measurement: dict[str, Any]) -> list[Published]:
    name, source, kind = measurement["name"], measurement["source"], measurement.get("kind", "")
    several = isinstance(kind, dict)  # by the last word of a row's name
    return [
        Published(
            name, what, value, unit, role, source, next(iter(relation), "="),
            kind[what.split()[-1]] if several else kind, measurement.get("machine", Published.machine),
        )
        for what, value, unit, role, *relation in measurement["rows"]
    ]  # fmt: skip


def rows(measurement: str, role: str | None = None) -> tuple[Published, ...]:
    """The rows of a measurement, all, or one role's; ConfigError for a measurement that there is not."""
    found = [row for row in all_rows() if row.measurement == measurement]
    if not found:
        one_of("measurement", measurement, sorted({row.measurement for row in all_rows()}))
    return tuple(row for row in found if role in (None, row.role))


def row(measurement: str, what: str) -> Published:
    """Return one row; ConfigError if there is none of that name."""
    for one in rows(measurement):
        if one.what == what:
            return one
    known = "; ".join(one.what for one in rows(measurement))
    raise ConfigError("what", what, f"no such row of {measurement}; there are {known}")
