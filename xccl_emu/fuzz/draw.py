"""Hypothesis strategies for sequences of calls, derived from the sizes of a case."""

from collections.abc import Collection, Mapping

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from xccl_emu.base.options import SWITCH
from xccl_emu.check.faults import OF_DIE
from xccl_emu.check.trial import Trial
from xccl_emu.protocol.case import Size, sizes_of
from xccl_emu.protocol.registry import Known
from xccl_emu.protocol.sequence import WAITS, Sizes, sizes_each_call


def values(size: Size) -> SearchStrategy[int | str]:
    """Small values of one size; which of them go together only the case knows."""
    if worth := size.examples or size.choices:
        return st.sampled_from([size.default, *(one for one in worth if one != size.default)])
    if isinstance(size.default, str):
        return st.just(size.default)
    least = 1 if size.least is None else size.least
    most = max(size.default, least + 1)
    return st.integers(least, most if size.most is None else min(most, size.most))


def some_sizes(sizes: Mapping[str, Size], fixed: Sizes) -> SearchStrategy[dict[str, int | str]]:
    """Some of the sizes with values of their own; those that are left out are the usual ones."""
    free = {name: values(size) for name, size in sizes.items() if name not in fixed}
    return st.fixed_dictionaries({}, optional=free)


def communicators(of: Known, fixed: Sizes) -> SearchStrategy[dict[str, int | str]]:
    """Sizes of a communicator."""
    each_call = {size.name for size in sizes_each_call(of)}
    own = {size.name: size for size in sizes_of(of.maker) if size.name not in each_call and not size.advanced}
    return some_sizes(own, {**of.preset.sizes, **fixed})


def calls(of: Known, fixed: Sizes) -> SearchStrategy[dict[str, int | str]]:
    """Draw the particulars of a call on a communicator."""
    sizes = {size.name: size for size in sizes_each_call(of)}
    if getattr(of.maker, "hosts_wait", False):
        sizes[WAITS] = Size(WAITS, 0, choices=SWITCH)
    return some_sizes(sizes, {**of.preset.sizes, **fixed})


def fault_in(trial: Trial, asked: Collection[str], kind: int, first: int, second: int) -> str:
    """Draw one fault: of the kinds (or faults) that are ``asked`` for, else of those that a protocol says it tolerates.

    Empty if it promises nothing, or there is one die.
    """
    kinds, dies = list(asked) or sorted(trial.tolerated - {"lose"}), trial.pod.spec.n_dies
    if not kinds or dies < 2:
        return ""
    name, source = kinds[kind % len(kinds)], first % dies
    if ":" in name:
        return name
    if name in OF_DIE:
        return f"{name}:die{source}"
    return f"{name}:{source}-{(source + 1 + second % (dies - 1)) % dies}"
