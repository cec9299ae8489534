"""Violations as SARIF 2.1.0, by which a review annotates the lines of kernels."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xccl_emu
from xccl_emu.check.verdict import KINDS, Verdict, Violation

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"\(([^()]+):(\d+)[,)]")


def sarif(verdict: Verdict, origin: str = "") -> dict[str, Any]:
    """The log of one check: a result for each violation, none for what is right.

    A violation is located at the lines that its message names, the first of them its own; where it names none, at the
    first line of the file of ``origin`` (``FILE.py:NAME``).  Files below the working directory have relative URIs.
    """
    found = [one for one in (verdict.violation, *verdict.others) if one is not None]
    rules = [{"id": _id(kind), "shortDescription": {"text": kind}} for kind in KINDS]
    driver = {"name": "xccl-emu", "version": xccl_emu.__version__, "rules": rules}
    results = [_result(verdict, one, origin) for one in found]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(verdict: Verdict, found: Violation, origin: str) -> dict[str, Any]:
    places = dict.fromkeys((file, int(line)) for file, line in _PLACE.findall(found.message))
    locations = _located([*places] or [(origin.rpartition(":")[0], 1)] * bool(origin))
    without = f", without {', '.join(verdict.without)}" if verdict.without else ""
    text = f"{found.kind}: {verdict.protocol} under {verdict.order}{without}: {found.message}"
    related = [{"id": number, **one} for number, one in enumerate(locations[1:], 1)]
    return {
        "ruleId": _id(found.kind), "ruleIndex": KINDS.index(found.kind), "level": "error", "message": {"text": text},
        "locations": locations[:1], **({"relatedLocations": related} if related else {}),
    }  # fmt: skip


def _located(places: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": line}}}
        for file, line in places
    ]


def _uri(file: str) -> str:
    """Relative to the working directory where the file is below it; else the whole path as a URI."""
    path, here = Path(file).resolve(), Path.cwd().resolve()
    if not path.is_relative_to(here):
        return path.as_uri()
    return path.as_uri().removeprefix(f"{here.as_uri()}/")
