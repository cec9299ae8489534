"""The text of a program: constants, the machine of requests, and the step functions of a pod's kernels."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from xccl_emu.lang import Kernel, abi, cpp
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.native import emulated

HERE = Path(__file__).parent
_SETS = ("VECTORS", "TRANSFERS", "SCALAR_WRITES", "FLAGS", "LOOKS")


def text(kernels: Sequence[Kernel], parts: Sequence[str]) -> str:
    """Return a program: files of ours by name, ``""`` where the kernels and their constants go."""
    return "\n".join(_program(kernels) if not part else (HERE / part).read_text() for part in parts)


def _program(kernels: Sequence[Kernel]) -> str:
    before = "struct Core;\nXCCL_DEVICE word step(word kernel, Core &core);"
    arithmetic, base, machine = ((HERE / f"{name}.h").read_text() for name in ("arithmetic", "emulated", "machine"))
    return "\n".join([constants(), before, arithmetic, base, emulated.text(), machine, steps(kernels)])


def steps(kernels: Sequence[Kernel]) -> str:
    """Return the step functions of some kernels, and ``step``, which calls one by its number."""
    cases = [f"    case {k}: return kernel{k}::v_step_{kernel.name}(core);" for k, kernel in enumerate(kernels)]
    head = ["XCCL_DEVICE word step(word kernel, Core &core) {", "  switch (kernel) {"]
    return "\n".join([cpp.steps(kernels), *head, *cases, "  }", "  return 0;", "}", ""])


def constants() -> str:
    """Return what C++ knows of requests, of the words of a core and of the machine."""
    places = {f"{row.name}_{operand}": i + 1 for row in rq.TABLE for i, operand in enumerate(row.operands.split())}
    of_ops = {"N": ops.N_OPERATIONS, **{name: getattr(ops, name) for name in _SETS}, **places}
    spaces = {"abi": _numbers(abi), "rq": _numbers(rq), "ms": _numbers(ms), "ops": of_ops}
    return "\n".join(f"namespace {name} {{\n{cpp.constants(values)}\n}}" for name, values in spaces.items())


def _numbers(module: ModuleType) -> Mapping[str, int]:
    return {name: value for name, value in vars(module).items() if name.isupper() and type(value) is int}
