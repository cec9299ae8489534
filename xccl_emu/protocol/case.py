"""A protocol in one configuration, and how its sizes are declared."""

import copy
import functools
import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self, cast

from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import SWITCH, Option, must_be_one_of, option, whole
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.machine.spec import CACHE_LINES_MAX, PodSpec
from xccl_emu.protocol import disagree, folder
from xccl_emu.protocol.bench import READINGS, Bench, Corner
from xccl_emu.protocol.paper import Paper
from xccl_emu.protocol.pod_run import PodRun

Size = Option
"""What is known of one size or choice of a protocol."""
BATCH, RANKS = "batch", "ranks"
CLAIMS = {
    BATCH: "the same token or column has the same bits in any batch, at any place, next to any others",
    RANKS: "all ranks hold the same bits",
}
SIZE_MAX = 1 << 16
"""Largest value of a size that names no other: what is larger is a mistake, and would take this machine's memory."""


def size(default: int, help: str = "", *, least: int = 1, most: int | None = SIZE_MAX, **more: Any) -> Any:
    """A field of a case that is a whole number in a range; ``more``, here and below: fields of `Size` of those
    names."""
    most = most if most is None else whole("most", most)
    return option(default, help, least=whole("least", least), most=most, **more)


def choice(default: int | str, help: str = "", *, of: Collection[int | str], **more: Any) -> Any:
    """A field of a case that is one of several values."""
    return option(default, help, choices=tuple(of), **more)


def switch(default: int, help: str = "", **more: Any) -> Any:
    """A field of a case that is 1 or 0, on or off; True and False are taken too."""
    return choice(default, help, of=SWITCH, **more)


def text(default: int | str, help: str = "", **more: Any) -> Any:
    """A field of a case that is a number or a string, which the case checks by itself."""
    return option(default, help, **more)


class Twins(NamedTuple):
    """What the oracle makes of drawn data."""

    rows: list[NDArray[Any]]
    """All must have the same bits."""
    reordered: NDArray[Any]
    """The first of them, with its summands added in another order."""


@dataclass(frozen=True)
class Preset:
    """A name by which commands know a case: what it is, and which of its sizes are not the usual ones."""

    name: str
    about: str
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    each_sync: Mapping[str, int | str] = field(default_factory=dict)
    """Sizes at which to find out what each synchronization is for: more than one core and round where that matters."""
    on_pod: Mapping[str, int | str] | None = None
    """Sizes with which it runs on the whole pod (`Case.run_on_pod`); None if it runs on one that it just fits."""


def _reading(name: str, help: str) -> Size:
    of = READINGS[name]
    return Size(name, of[0], help, choices=tuple(dict.fromkeys(of)), advanced=True)


POD_SIZES = (
    Size(
        "scalar_cache", 0, "Lines of 64 bytes that the scalar unit of a core caches; 0: it has no cache.",
        least=0, most=CACHE_LINES_MAX, advanced=True,
    ),
    Size("rank", "", "N:SIZE=VALUE: the rank on die N calls with another size than all others."),
    Size(
        "invariant", "", "Property to check: `batch` or `ranks`. The data make another order of sums visible.",
        choices=("", *CLAIMS),
    ),
    *(_reading(name, help) for name, help in (
        ("barrier", "Whether PipeBarrier of all pipes waits until writes are visible, or until the pipes are empty."),
        ("sync_all", "Whether SyncAll holds such a barrier, or is arrival and nothing else."),
        ("hazards", "Whether a core resolves hazards of its data buffer, or an event or PipeBarrier<PIPE_V> must."),
        ("scopes", "Whether what CUDA orders for a block or a GPU, barriers too, is visible to all ranks, or to none."),
        ("vectors", "Whether CUDA's accesses of several elements, up to 16 bytes, are made at once, or one by one."),
        ("reads", "Whether CUDA's relaxed and volatile reads of flags acquire, or a fence after them must."),
        ("boundary", "Whether the end of a CUDA kernel that another one follows publishes to all ranks, or to none."),
        ("owners", "Of bytes whose owners nobody names: due when these have returned, or when everything has drained."),
    )),
)  # fmt: skip
"""What can be chosen of any case, most of it of the pod, in addition to its own sizes (`Case.with_pod_options`)."""
ONLY_CHECKED = ("rank", "invariant")
"""Only a check judges these of `POD_SIZES`."""


class Case:
    """A protocol in one configuration: derive a frozen dataclass from it, with `size` and `choice` for its fields.

    Invalid fields raise ConfigError when the case is made; a case adds its own conditions in ``__post_init__``, after
    ``super().__post_init__()``.
    """

    presets: ClassVar[tuple[Preset, ...]] = ()
    """Names for commands, the most general one first; without any, the name is the class's."""
    replayed: ClassVar[bool] = False
    """May a call of `lay_out_calls` have the arguments of an earlier one (`Call.again`)?"""
    hosts_wait: ClassVar[bool] = False
    """Does it heed `Call.waits`?"""
    side_by_side: ClassVar[bool] = False
    """May two communicators of it be laid out on one pod (`Bench.corner`)?"""
    papers: ClassVar[tuple[Paper, ...]] = ()
    """What papers say of it, if any does, and where its kernels deviate (`tools/fidelity.py` makes a page of it)."""
    proof_rows: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({"default sizes": {}})
    """Configurations that are to be verified under every schedule: what is particular, and sizes; a small one first."""
    proof_usual: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Sizes of all of them, unless a row has others."""

    pod_sizes: Mapping[str, int | str] = MappingProxyType({})
    """Values of `POD_SIZES` that differ from the default."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Raises ConfigError for a field that would hide what every case has."""
        super().__init_subclass__(**more)
        for name, kind in inspect.get_annotations(cls).items():
            if hasattr(Case, name) and "ClassVar" not in str(kind):
                raise ConfigError(f"{cls.__name__}.{name}: every case has a {name!r} of its own; give it another name")

    def with_pod_options(self, **given: int | str) -> Self:
        """The same case on a pod that has some of `POD_SIZES`; ConfigError for others, or one out of range."""
        known, chosen = {each.name: each for each in POD_SIZES}, dict(self.pod_sizes)
        for name, value in given.items():
            if name not in known:
                raise ConfigError(name, value, must_be_one_of(name, known))
            chosen[name] = known[name].checked(value)
        case = copy.copy(self)
        object.__setattr__(case, "pod_sizes", {n: value for n, value in chosen.items() if value != known[n].default})
        if claim := case.pod_sizes.get("invariant", ""):
            if claim not in self.claims:
                has = ", ".join(self.claims) or "none"
                raise ConfigError("invariant", claim, f"{self.name} of these sizes has {has}")
            if "rank" in case.pod_sizes:
                raise ConfigError("invariant", claim, "cannot be combined with rank, where sizes of ranks differ")
        return case

    def __post_init__(self) -> None:
        for each in self.sizes():
            object.__setattr__(self, each.name, each.checked(getattr(self, each.name)))

    def lay_out(self, bench: Bench) -> None:
        """Make the pod, put data in, say what must be there in the end, and launch the kernels.

        It is called again for each part of a check, and must do the same each time.
        """
        raise NotImplementedError(f"{type(self).__name__}.lay_out")

    @property
    def claims(self) -> Collection[str]:
        """Return which of `CLAIMS` may be asked for, with these sizes."""
        return ()

    def twins(self, draw: int) -> Twins:
        """Return what the oracle makes of data for the claim that is chosen."""
        raise NotImplementedError(f"{type(self).__name__}.twins")

    def reordered(self) -> tuple[int, int]:
        """Return how many results of its own data have other bits if added up in another order, and how many it has."""
        raise NotImplementedError(f"{type(self).__name__}.reordered")

    def fit_to_memory(self, given: Collection[str], run: PodRun) -> tuple[Self, str]:
        """The case as it is run on the whole pod, and a note if it is smaller than usual, so as to fit the memory.

        Only sizes that are not ``given`` may differ; CapacityError if it does not fit.
        """
        return self, ""

    def run_on_pod(self, run: PodRun) -> None:
        """On the whole pod: make one call after the other, as a user does, and hold each against the oracle."""
        raise NotImplementedError(f"{type(self).__name__}.run_on_pod")

    def lay_out_calls(self, bench: Bench, calls: "Sequence[Call]") -> None:
        """Lay out several calls on one communicator; each rank makes them one after the other at its own pace.

        ``calls`` have the sizes of this case but for those that may differ from call to call (``each_call=True``).  A
        case that has such sizes overrides this; any other is called on a pod that is at rest, and made again for it.
        """
        if len(calls) != 1:
            raise ConfigError(f"calls: {self.name} makes one call on a pod at rest, there are {len(calls)}")
        calls[0].case.lay_out(bench)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return what `pickle` asks for; a case of a file goes with the contents of its files."""
        usual, there = super().__reduce_ex__(protocol), folder.ClassThere.of(type(self))
        return usual if there is None else (folder.blank, (there,), *usual[2:])

    @classmethod
    def sizes(cls) -> tuple[Size, ...]:
        """Return what can be chosen, in the order in which reports print it."""
        known = map(Option.of, fields(cls))  # type: ignore[arg-type]
        return tuple(sorted(known, key=lambda size: size.advanced))

    @classmethod
    def proofs(cls) -> "Mapping[str, Case]":
        """Return what `proof_rows` describe, by what is particular; a case whose rows are computed overrides this."""
        return {what: cls(**{**cls.proof_usual, **sizes}) for what, sizes in cls.proof_rows.items()}

    @classmethod
    def known_as(cls) -> tuple[Preset, ...]:
        """Return its names; the names of a class that it derives from are not its own."""
        own: tuple[Preset, ...] = cls.__dict__.get("presets", ())
        return own or (Preset(cls.__name__, first_sentence(cls)),)

    @property
    def name(self) -> str:
        """Return its name in reports: the last of its names whose sizes it has, else the first one."""
        first, *others = self.known_as()
        having = [preset for preset in others if self.configuration.items() >= preset.sizes.items()]
        return [first, *having][-1].name

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Every size, those at their default too, but for those that are `Size.advanced`."""
        own = {each.name: value for each, value in self._values().items() if not each.advanced or value != each.default}
        return {**own, **self.pod_sizes}

    @property
    def payload_bytes(self) -> int | None:
        """Payload of the call in bytes, for bandwidths; None if it has no such number."""
        return None

    @property
    def up_to(self) -> "Mapping[str, Case]":
        """Return the case up to the end of each operator, by the operator's name, where these are timed one by one."""
        return {}

    @property
    def bus_factor(self) -> float:
        """Return the factor from the algorithm's bandwidth to the bus bandwidth, as nccl-tests define it."""
        return 1.0

    @property
    def published_bytes(self) -> Mapping[str, int]:
        """Return what published libraries reserve on each rank for it, by the name of their formula and its source."""
        return {}

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations in the kernels that it launches."""
        return syncs(self)

    @property
    def origin(self) -> str:
        """``FILE.py:NAME`` by which commands know a case that is in no package; empty for one that is."""
        return origin_of(type(self))

    def lesser(self) -> Mapping[str, Sequence[int]]:
        """Values from the least one up to its own, of each size that may be smaller (`check.confirm`)."""
        values = {} if "rank" in self.pod_sizes else self._values()
        given = {each.name: each.below(each.even(value)) for each, value in values.items()}
        return {name: below for name, below in given.items() if len(below) > 1}

    def resized(self, sizes: Mapping[str, int]) -> Self:
        """The same case with other sizes; ConfigError if it refuses them."""
        own = {each.name: each.even(value) for each, value in self._values().items()}
        return replace(self, **{**own, **sizes}).with_pod_options(**self.pod_sizes)  # type: ignore[type-var]

    def build(self, order: str, without: Collection[str] = (), *, payload: bool = True) -> Trial:
        """A fresh pod with the kernels launched; raises what `lay_out` raises.

        Without payload what only travels is zero, as far as the case says what that is, and nothing is expected.
        """
        if said := str(self.pod_sizes.get("rank", "")):
            case = self.with_pod_options(rank="")
            return disagree.build(said, case, case._of_rank(said), order, without, payload)
        bench = Bench(order, without, self.pod_sizes, payload)
        self.lay_out(bench)
        return bench.trial()

    def _of_rank(self, said: str) -> "Case":
        """Return the case with the size of that rank; ConfigError for what no rank can call with."""
        _, name, value = disagree.one_size(said)
        if name not in (names := [each.name for each in self._values()]):
            raise ConfigError("rank", said, f"{self.name} has no such size, but {', '.join(names)}")
        other = self.resized({name: int(value) if value.isdecimal() else value})  # type: ignore[dict-item]
        if other.configuration == self.configuration:
            raise ConfigError("rank", said, "is what all ranks call with")
        return other

    def _values(self) -> Mapping[Size, int | str]:
        return {each: getattr(self, each.name) for each in self.sizes()}

    def spec(self, calls: "Sequence[Call]" = (), dies: int = 0) -> PodSpec:
        """Return the pod that it asks for, without its `pod_sizes`; raises what `lay_out_calls` raises.

        It is for these calls, or for one, and has room for what a pod with more ``dies`` needs where others take them.
        """
        bench = Bench("sc", (), payload=False)
        bench.corner = Corner(dies=dies)
        self.lay_out_calls(bench, calls or [Call(self)])
        return bench.trial().pod.spec

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.configuration.items())})"


def origin_of(made: Any) -> str:
    """The file and name of a class or a function, unless a package has it or there is no file."""
    if made.__module__.partition(".")[0] == "xccl_emu":
        return ""
    try:
        return f"{Path(inspect.getfile(made)).resolve(strict=True)}:{made.__name__}"
    except (OSError, TypeError):
        return ""


def first_sentence(documented: Any) -> str:
    """The first line of a docstring."""
    return (documented.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True)
class Call:
    """One of several calls on a communicator."""

    case: Case
    again: int | None = None
    """The number of an earlier call whose arguments it has, as a captured graph replays them; its data are its own."""
    waits: bool = False
    """Has each host waited for all that it launched before it makes this call (`Streams`)?"""


Build = Callable[..., None]
"""``build(bench, **sizes)``."""


@dataclass(frozen=True)
class _Sent:
    """A protocol function as another process gets it: by its name, under which there is what `protocol` made of it."""

    function: Build

    def __reduce__(self) -> Any:
        there = folder.ClassThere.of(self.function)
        return _Sent.found, (there or getattr(sys.modules[self.function.__module__], self.function.__qualname__),)

    @staticmethod
    def found(there: Any) -> "_Sent":
        """The function in this process."""
        made = there.load() if isinstance(there, folder.ClassThere) else there
        return _Sent(getattr(made, "__wrapped__", made))


@dataclass(frozen=True)
class FunctionCase(Case):
    """A protocol function with its sizes."""

    title: str
    values: Mapping[str, int | str]
    function: Build = field(repr=False)

    def __post_init__(self) -> None:
        """The sizes are checked where the function is called."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "function": _Sent(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "function": state["function"].function})

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.title

    @property
    def origin(self) -> str:
        """Return `Case.origin` of the function."""
        return origin_of(self.function)

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Every size, in the order of the function's parameters."""
        return {**self.values, **self.pod_sizes}

    def resized(self, sizes: Mapping[str, int]) -> Self:
        """Return what `Case.resized` does, of the function's parameters."""
        return replace(self, values={**self.values, **sizes}).with_pod_options(**self.pod_sizes)

    def _values(self) -> Mapping[Size, int | str]:
        return {Size(name, value): value for name, value in self.values.items()}

    def lay_out(self, bench: Bench) -> None:
        """Call the function."""
        self.function(bench, **self.values)

    __str__ = Case.__str__


def protocol(function: Build) -> Callable[..., Case]:
    """Make a protocol of a function ``f(bench, size=default, ...)``; called with sizes alone it gives a `Case`.

    The function makes a pod (`Bench.pod`), puts data in, says what must be there in the end, and launches kernels.  It
    is called for each part of a check and must do the same each time.  Sizes are whole numbers or strings, so that
    a replay file can keep them; ConfigError for anything else, and for a size the function does not have.
    """
    signature = inspect.signature(function)
    named = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(function)
    def case(*args: int | str, **given: int | str) -> Case:
        try:
            bound = named.bind(*args, **given)
        except TypeError as error:
            raise ConfigError(f"{function.__name__}: {error}") from error
        bound.apply_defaults()
        values = {name: Size(name, value).checked(value) for name, value in bound.arguments.items()}
        return FunctionCase(function.__name__, values, function)

    case.makes_case = True  # type: ignore[attr-defined]
    return case


def sizes_of(made: Any) -> tuple[Size, ...]:
    """The sizes of a class derived from `Case`, of another dataclass, or of a protocol function; ConfigError for a
    class that is no dataclass, or has a field without a default."""
    if isinstance(made, type) and not is_dataclass(made):
        raise ConfigError(f"{made.__name__}: must be a dataclass, made so by @dataclass(frozen=True)")
    for each in fields(made) if isinstance(made, type) else ():
        if not isinstance(each.default, int | str):
            raise ConfigError(f"{made.__name__}.{each.name}: must have a number or text as its default, as size(2)")
    if isinstance(made, type) and issubclass(made, Case):
        return made.sizes()
    if isinstance(made, type):
        return tuple(Size(each.name, cast(int | str, each.default)) for each in fields(made))
    parameters = list(inspect.signature(made.__wrapped__).parameters.values())[1:]
    return tuple(Size(each.name, "" if each.default is each.empty else each.default) for each in parameters)


def syncs(checkable: Checkable, order: str = "relaxed") -> tuple[str, ...]:
    """Names of the synchronizations in the kernels that it launches, each once, in the order of their sources."""
    kernels = checkable.build(order).pod.kernels
    return tuple(dict.fromkeys(site.sync for kernel in kernels for site in kernel.sites if site.sync))


def reached_syncs(case: Case, order: str = "relaxed") -> frozenset[str]:
    """Names of the synchronizations that a run comes to; the others belong to paths that this configuration lacks."""
    trial = case.build(order)
    trial.pod.record = True
    trial.pod.run()
    from xccl_emu.check.witness.tracer import steps  # compiled code is imported only when something runs

    trace = steps(case.build(order), trial.pod.schedule.actions.tolist())
    return frozenset(step.source.sync for step in trace.steps if step.source is not None and step.source.sync)


class Collective(Case):
    """A case with a payload of any size, several calls back to back, and results in place or not.

    It derives from this and from `Case`, and has the fields that are named here.
    """

    calls: int
    in_place: int
    dtype: str
    """``"bf16"`` or ``"fp16"``."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Elements, as an argument of the call would give them: of a share, where each rank has its own."""

    @property
    @abstractmethod
    def redop(self) -> str:
        """``"sum"``, or ``"none"`` of what adds nothing."""

    @abstractmethod
    def of_bytes(self, nbytes: int) -> Self:
        """Return the same with a payload of ``nbytes`` bytes, or a little less where ranks cannot share them evenly."""
