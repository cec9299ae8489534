"""The requests for C: a macro for each function of `requests`, made by calling it with the names of its operands.

``python -m xccl_emu.lang.foreign.header`` writes ``xccl_requests.h``; a test holds the file against `text`.
"""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from xccl_emu.lang import maps
from xccl_emu.lang import requests as rq

FILE = Path(__file__).with_name("xccl_requests.h")
_DESIGNATORS = ("step", "sync", "order", "tentative")


def _constants() -> Iterator[str]:
    for name, value in {**vars(rq), **vars(maps)}.items():
        if name.isupper() and isinstance(value, int):
            yield f"    XCCL_{name} = {value},"


def _macro(request: Callable[..., Any], **given: int) -> str:
    operands = [name for name in inspect.signature(request).parameters if name not in _DESIGNATORS]
    operation, *words = request(*operands, **given)
    named = f"XCCL_OP_{rq.OPERATIONS[operation].upper()}"
    asked = ", ".join([f'"{request.__name__}"', named, *map(str, words), "__VA_ARGS__"])
    says = "; ".join([(inspect.getdoc(request) or "").partition("\n")[0].rstrip("."), *given])
    name = "_".join(["xccl", request.__name__, *given])
    return f"/* {says}. */\n#define {name}({', '.join([*operands, '...'])}) \\\n    XCCL_ASK({asked})\n"


def text() -> str:
    """Return what the file must hold."""
    made = [each for each in vars(rq).values() if inspect.isfunction(each) and each is not rq.poll_any]
    lines = ["/* Made of xccl_emu/lang/requests.py by `python -m xccl_emu.lang.foreign.header`: edit that. */"]
    lines += ["#pragma once", "", "enum {", *_constants(), "};", "", *map(_macro, made)]
    lines += [_macro(rq.mtu_in, tentative=rq.TENTATIVE)]
    return "\n".join(lines)


if __name__ == "__main__":
    FILE.write_text(text())
