"""Several calls on one pod, as something that can be checked: what hides in one call may show in the next.

A sequence has stages.  A stage is a communicator with its sizes, and the calls on it, which each rank makes one after
the other at its own pace; the next stage begins when the pod is at rest.  Then hosts have set the metadata areas to
zero and given their app data back, as `Case.lay_out` finds them on a new pod; what was in managed data stays there.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.trial import Trial
from xccl_emu.machine.launch import Launch
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.machine.state import Labels
from xccl_emu.protocol.bench import OTHER, Corner, Shared, launches, of_spec, room_for
from xccl_emu.protocol.case import POD_SIZES, Call, Case, Size, origin_of, sizes_of
from xccl_emu.protocol.registry import Known, known

Sizes = Mapping[str, int | str]
AGAIN = "again"
"""In place of the sizes of a call: the number of the call of its stage whose arguments it has."""
WAITS = "waits"
"""With the sizes of a call: 1 if hosts wait for all calls before it, 0 if they launch it at once."""
REPLAYED = "replayed"
"""With a stage: 1 if it launches again what the stage before has launched."""


@dataclass(frozen=True)
class Stage:
    """A communicator, and the calls on it."""

    sizes: Sizes = field(default_factory=dict)
    """Sizes of the communicator; the others have their defaults."""
    calls: tuple[Sizes, ...] = ({},)
    """What is particular of each call, or ``{"again": number}``."""
    beside: "Stage | None" = None
    """Another communicator at the same time, on the first dies too, with cores and areas of its own."""
    replayed: bool = False
    """Does it launch what the stage before has, as a captured graph does, with fields as they were left?"""

    @classmethod
    def read(cls, given: Any) -> "Stage":
        """Return the stage that `to_json` has written; KeyError, TypeError or ValueError for anything else."""
        other = given.get(OTHER) if isinstance(given, dict) else None
        calls = tuple(map(dict, given["calls"]))
        if not calls:
            raise ValueError("nobody makes a call")
        also = None if other is None else cls.read(other)
        return cls(dict(given["sizes"]), calls, also, bool(given.get(REPLAYED)))

    def to_json(self) -> dict[str, Any]:
        """Return it as a replay file has it."""
        own: dict[str, Any] = {"sizes": dict(self.sizes), "calls": [*map(dict, self.calls)]}
        own |= {REPLAYED: 1} if self.replayed else {}
        return own if (other := self.beside) is None else own | {OTHER: other.to_json()}

    @property
    def communicators(self) -> "tuple[Stage, ...]":
        """Return the stage, and the other communicators at the same time."""
        return (self,) if (other := self.beside) is None else (self, *other.communicators)

    def __str__(self) -> str:
        calls = "; ".join(_text(call) or "a call" for call in self.calls)
        own = f"{'replayed with ' * self.replayed}{_text(self.sizes) or 'usual sizes'}: {calls}"
        return own if (other := self.beside) is None else f"{own} {OTHER} {other}"


@dataclass(frozen=True)
class Sequence:
    """Calls of one protocol on one pod; what `xccl_emu.check.check` takes, and judges the last stage of."""

    of: Known
    stages: tuple[Stage, ...]

    @classmethod
    def read(cls, protocol: str, configuration: Sizes) -> "Sequence":
        """From the name of a protocol and what `configuration` has given; ConfigError for anything else."""
        try:
            stages = tuple(map(Stage.read, json.loads(str(configuration["stages"]))))
            if not stages:
                raise ValueError("nobody makes a call")
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"stages: are no sequence of calls ({error})") from error
        read = cls(known(protocol), stages)
        read._check_names()
        return read

    @property
    def origin(self) -> str:
        """Return the same as `Case.origin`."""
        return origin_of(self.of.maker)

    def _check_names(self) -> None:
        """ConfigError for sizes that the protocol does not have, and values that are none."""
        there = [size.name for size in (*sizes_of(self.of.maker), *POD_SIZES)]
        each = [one for stage in self.stages for one in stage.communicators]
        of_stages = [(item, there) for one in each for item in one.sizes.items()]
        of_calls = [(item, [*there, AGAIN, WAITS]) for one in each for call in one.calls for item in call.items()]
        for (name, value), names in (*of_stages, *of_calls):
            if name not in names:
                raise ConfigError(f"stages: {name}={value!r}: {self.name} has no such size, but {', '.join(there)}")
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise ConfigError(f"stages: {name}={value!r}: must be a whole number or a text")

    @property
    def name(self) -> str:
        """Name of the protocol."""
        return self.of.preset.name

    @property
    def configuration(self) -> Sizes:
        """The stages as text."""
        return {"stages": json.dumps([stage.to_json() for stage in self.stages])}

    @property
    def n_calls(self) -> int:
        """Number of calls of all stages."""
        return sum(len(each.calls) for stage in self.stages for each in stage.communicators)

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The last stage, launched on a pod on which those before it have run; raises what `Case.lay_out` raises.

        The stages before it run round robin: they are judged by sequences that end with them.
        """
        made, specs = self._made(), self._specs
        options = _pod_sizes(made)
        pod = Pod(room_for([_beside(each) for each in specs]).with_(**of_spec(options)), order=order, without=without)
        trial = _laid_out(made[0], specs[0], pod, options)
        for stage, together, each in zip(self.stages[1:], made[1:], specs[1:], strict=True):
            captured = launches(pod)
            pod.run()
            left = pod.memory.copy() if stage.replayed else None
            _tidy(pod)
            trial = _laid_out(together, each, pod, options)
            if left is not None:
                _replay(pod, captured, left)
        return trial

    def _made(self) -> list[list[list[Call]]]:
        """The calls of each communicator of each stage."""
        return [[[*self._calls(each)] for each in stage.communicators] for stage in self.stages]

    @cached_property
    def _specs(self) -> list[list[PodSpec]]:
        """Say, once, what each communicator of each stage asks for on a pod with dies for all of them."""
        made = self._made()
        alone = [[(calls, calls[0].case.spec(calls)) for calls in together] for together in made]
        dies = max(spec.n_dies for together in alone for _, spec in together)
        for together in made:
            if len(together) > 1 and not together[0][0].case.side_by_side:
                raise ConfigError(f"{OTHER}: {together[0][0].case.name} has one communicator at a time")
        return [[_spec_on(dies, calls, spec) for calls, spec in together] for together in alone]

    def _calls(self, stage: Stage) -> Iterator[Call]:
        calls = list[Call]()
        for sizes in stage.calls:
            again, waits = sizes.get(AGAIN), _waits(sizes.get(WAITS, 0))
            if again is None:
                own = {name: value for name, value in sizes.items() if name != WAITS}
                calls.append(Call(self.of.made({**stage.sizes, **own}), waits=waits))
            else:
                calls.append(Call(calls[_number(again, len(calls))].case, int(again), waits))
            yield calls[-1]

    def __str__(self) -> str:
        return " | ".join(map(str, self.stages))


def replayed(stage: Stage, number: int) -> Stage:
    """Return the ``number``-th replay of a stage: other data, by the case's own ``seed``."""
    return replace(stage, sizes={**stage.sizes, "seed": int(stage.sizes.get("seed", 0)) + number}, replayed=True)


def sizes_each_call(of: Known) -> tuple[Size, ...]:
    """Sizes that may differ from call to call; none if its calls find a pod at rest."""
    return tuple(size for size in sizes_of(of.maker) if size.each_call) if makes_rows(of) else ()


def makes_rows(of: Known) -> bool:
    """Can its calls follow each other on one communicator?"""
    return getattr(of.maker, "lay_out_calls", Case.lay_out_calls) is not Case.lay_out_calls


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())


def _waits(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ConfigError(WAITS, value, "must be 0 or 1")


def _number(again: Any, calls: int) -> int:
    if isinstance(again, int) and 0 <= again < calls:
        return again
    raise ConfigError("again", again, f"must be the number of an earlier call, 0 to {calls - 1}")


# ---- one pod for all of them


def _pod_sizes(made: list[list[list[Call]]]) -> Mapping[str, Any]:
    """`Case.pod_sizes` of all calls; ConfigError if they differ, as there is one pod."""
    first, *others = [call.case.pod_sizes for together in made for calls in together for call in calls]
    if "rank" in first:
        raise ConfigError("rank", first["rank"], "is of a single call; xccl-emu check has it")
    for other in others:
        if other != first:
            raise ConfigError(f"stages: one pod cannot have {dict(first)} and {dict(other)}; say it of all calls")
    return first


def _spec_on(dies: int, calls: list[Call], alone: PodSpec) -> PodSpec:
    """Return what calls ask for on a pod with ``dies`` dies, given what they ask for ``alone``."""
    return alone if alone.n_dies == dies else calls[0].case.spec(calls, dies)


def _laid_out(together: list[list[Call]], specs: list[PodSpec], pod: Pod, options: Mapping[str, Any]) -> Trial:
    bench, corner = Shared(pod, options), Corner(dies=pod.spec.n_dies)
    for calls, spec in zip(together, specs, strict=True):
        bench.settle(corner)
        calls[0].case.lay_out_calls(bench, calls)
        ends = (corner.core + spec.cores_per_die, corner.meta + spec.meta_bytes, corner.managed + spec.managed_bytes)
        corner = Corner(*ends, corner.dies)
    return bench.trial()


def _beside(specs: list[PodSpec]) -> PodSpec:
    """The least pod on which all of them have room at once."""
    if len(specs) == 1:
        return specs[0]
    areas = ("app_bytes", "meta_bytes", "managed_bytes")
    room = {name: sum(int(getattr(spec, name)) for spec in specs) for name in areas}
    cores = sum(spec.cores_per_die for spec in specs)
    widest = room_for(specs)
    return small_pod(
        widest.n_dies, cores, **room, ub_bytes=widest.ub_bytes, flight_granules=widest.flight_granules,
        atomic_bytes=widest.atomic_bytes,
    ).with_(registers=widest.registers)  # fmt: skip


def _replay(pod: Pod, captured: list[Launch], left: NDArray[np.uint8]) -> None:
    """Let areas hold what the stage before has left in them; ConfigError if what is launched was not captured so."""
    before, now = ([(each.kernel, each.die, each.cores, each.args) for each in of] for of in (captured, launches(pod)))
    if before != now:
        raise ConfigError("replays", 1, "other data have other launches; a captured graph has them as they were")
    for start in range(0, pod.spec.memory_bytes, pod.spec.die_bytes):
        areas = slice(start + pod.spec.app_bytes, start + pod.spec.die_bytes)
        pod.memory[areas] = left[areas]


def _tidy(pod: Pod) -> None:
    """Tidy up after a stage: metadata and app data are zero again, and app data free."""
    spec = pod.spec
    for start in range(0, spec.memory_bytes, spec.die_bytes):
        pod.memory[start : start + spec.managed_start] = 0
    pod.release_app({})
    pod.labels = Labels()
