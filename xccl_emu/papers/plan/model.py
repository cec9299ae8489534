"""What the analyzer knows of a model: counts of its layers, heads and experts, from a TOML file.

A field that is missing, unknown, of another type or absurd is refused by name.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib.resources import files
from typing import Any, TypeVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import must_be_one_of
from xccl_emu.base.output import read_bytes

Record = TypeVar("Record")


@dataclass(frozen=True)
class NumberRange:
    """What a number may be; whole where ``whole``."""

    least: float
    most: float
    whole: bool
    what: str

    def check(self, name: str, value: object) -> None:
        """Raises ConfigError unless ``value`` is a number within it."""
        right = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if not right or not self.least <= value <= self.most or not math.isfinite(value):  # type: ignore[operator, arg-type]
            kind = "a whole number" if self.whole else "a number"
            raise ConfigError(name, value, f"must be {kind}, {self.least:g} to {self.most:g} ({self.what})")


def whole(what: str, least: int, most: int, default: Any = MISSING) -> Any:
    """A field that holds a whole number."""
    return field(default=default, metadata={"range": NumberRange(least, most, True, what)})


def number(what: str, least: float, most: float, default: Any = MISSING) -> Any:
    """A field that holds a number."""
    return field(default=default, metadata={"range": NumberRange(least, most, False, what)})


def check_numbers(record: Any) -> None:
    """Raises ConfigError for the first number of a record that is out of its range, or a name that is no text."""
    for each in fields(record):
        if each.name == "name" and not isinstance(record.name, str):
            raise ConfigError("name", record.name, "must be a text")
        if "range" in each.metadata:
            each.metadata["range"].check(each.name, getattr(record, each.name))


def check_names(kind: type, table: object, where: str) -> Mapping[str, Any]:
    """The table itself; ConfigError if it is none, or has other fields than ``kind``."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with {', '.join(each.name for each in fields(kind))}")
    known = {each.name: each for each in fields(kind)}
    for name in table:
        if name not in known:
            raise ConfigError(f"{where}: {name}={table[name]!r}: no such field; there are {', '.join(known)}")
    for name, each in known.items():
        if name not in table and each.default is MISSING:
            raise ConfigError(f"{where}: {name} is missing: {_wanted(each)}")
    return table


def record(kind: type[Record], table: object, where: str) -> Record:
    """A record of plain fields from a table; ConfigError, saying where, if it cannot be made."""
    try:
        return kind(**check_names(kind, table, where))
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(where) else f"{where}: {message}") from error


def load(name_or_path: str, known: Mapping[str, str], option: str) -> tuple[Mapping[str, Any], str]:
    """The tables of a shipped file, by its name, or of a user's, by its path; and what to call it in errors.

    known: names of shipped files in ``data/``, without suffix, by the names that users give.
    Raises ConfigError if there is no such file, or it is no TOML.
    """
    if name_or_path in known:
        text = files("xccl_emu.papers.plan").joinpath("data", f"{known[name_or_path]}.toml").read_text("utf-8")
        return tomllib.loads(text), name_or_path
    if not name_or_path.endswith(".toml"):
        names = f"{', '.join(known)}, or " if known else ""
        raise ConfigError(option, name_or_path, f"must be {names}a file that ends with .toml")
    try:
        return tomllib.loads(read_bytes(name_or_path).decode("utf-8")), name_or_path
    except OSError as error:
        raise ConfigError(option, name_or_path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # of TOML, of UTF-8, of a path
        raise ConfigError(option, name_or_path, f"is no TOML ({error})") from error


def _wanted(each: "Field[Any]") -> str:
    if "range" not in each.metadata:
        return "must be given"
    of: NumberRange = each.metadata["range"]
    return f"{of.what}, {of.least:g} to {of.most:g}"


SHIPPED = {"DeepSeek-R1": "deepseek-r1", "Qwen3-235B-A22B": "qwen3-235b-a22b"}
"""Models that come with the package, and their files."""


@dataclass(frozen=True)
class Latent:
    """Attention that caches one latent vector a token for all heads (MLA)."""

    heads: int = whole("attention heads", 1, 4096)
    query_rank: int = whole("elements of the latent query", 1, 1 << 20)
    kv_rank: int = whole("elements of the latent key and value", 1, 1 << 20)
    nope_dim: int = whole("elements of a head's key without position", 1, 1 << 16)
    rope_dim: int = whole("elements of the key with position, one for all heads", 1, 1 << 16)
    value_dim: int = whole("elements of a head's value", 1, 1 << 16)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range."""
        check_numbers(self)

    def parameters(self, hidden: int) -> int:
        """Weights of one layer's attention."""
        query = self.query_rank * (hidden + self.heads * (self.nope_dim + self.rope_dim))
        cache = hidden * (self.kv_rank + self.rope_dim)
        return query + cache + self.heads * (self.kv_rank * (self.nope_dim + self.value_dim) + self.value_dim * hidden)

    def cached(self, degree: int) -> int:
        """Elements that a device keeps of each token in each layer: every one of ``degree`` keeps the whole vector."""
        return self.kv_rank + self.rope_dim


@dataclass(frozen=True)
class Grouped:
    """Attention in which groups of heads share keys and values (GQA); MHA where there are as many of both."""

    heads: int = whole("attention heads", 1, 4096)
    kv_heads: int = whole("heads of keys and of values", 1, 4096)
    head_dim: int = whole("elements of a head", 1, 1 << 16)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range, or heads that do not divide into groups."""
        check_numbers(self)
        if self.heads % self.kv_heads:
            raise ConfigError("kv_heads", self.kv_heads, f"must divide heads={self.heads}")

    def parameters(self, hidden: int) -> int:
        """Weights of one layer's attention."""
        return 2 * hidden * self.head_dim * (self.heads + self.kv_heads)

    def cached(self, degree: int) -> int:
        """Elements that a device keeps of each token in each layer: its share of the heads, one at least, twice."""
        return 2 * self.head_dim * -(-self.kv_heads // degree)


@dataclass(frozen=True)
class Experts:
    """The experts of a layer, each three matrices."""

    routed: int = whole("routed experts of a layer", 1, 1 << 16)
    shared: int = whole("shared experts of a layer", 0, 1 << 10)
    top_k: int = whole("routed experts of a token", 1, 1 << 10)
    intermediate: int = whole("inner elements of an expert", 1, 1 << 20)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range, or more experts of a token than there are."""
        check_numbers(self)
        if self.top_k > self.routed:
            raise ConfigError("top_k", self.top_k, f"must be at most routed={self.routed}")

    def touched(self, tokens: float) -> float:
        """Return how many experts this many tokens read the weights of, on average, if choices are uniform."""
        missed: float = (1 - self.top_k / self.routed) ** tokens
        return self.shared + self.routed * (1 - missed)


@dataclass(frozen=True)
class DecoderModel:
    """A model of decoder layers; sizes are in elements."""

    name: str
    attention: Latent | Grouped
    experts: Experts
    hidden: int = whole("elements of a hidden state", 1, 1 << 20)
    layers: int = whole("decoder layers", 1, 1 << 12)
    weight_bytes: float = number("bytes of a weight", 0.1, 8)
    cache_bytes: float = number("bytes of a cached element", 0.1, 8)
    dense_layers: int = whole("layers of them without experts", 0, 1 << 12, default=0)
    dense_intermediate: int = whole("inner elements of those", 0, 1 << 20, default=0)
    activation_bytes: float = number("bytes of an element that is sent", 0.1, 8, default=2)

    def __post_init__(self) -> None:
        """Raises ConfigError for a field out of range."""
        check_numbers(self)
        if self.dense_layers >= self.layers:
            raise ConfigError("dense_layers", self.dense_layers, f"must be below layers={self.layers}")

    @property
    def attention_parameters(self) -> int:
        """Weights of all attention blocks."""
        return self.layers * self.attention.parameters(self.hidden)

    def expert_parameters(self, each: float) -> float:
        """Weights of all expert blocks if each has ``each`` experts; the dense layers' feed-forward is among them."""
        dense = self.dense_layers * self.dense_intermediate
        return 3 * self.hidden * (dense + (self.layers - self.dense_layers) * each * self.experts.intermediate)

    @property
    def all_experts(self) -> int:
        """Experts of a layer."""
        return self.experts.routed + self.experts.shared

    @property
    def active_experts(self) -> int:
        """Experts of a layer that a token goes through."""
        return self.experts.top_k + self.experts.shared


def load_model(name_or_path: str) -> DecoderModel:
    """A model by its name or the path of a TOML file; ConfigError, naming the field, if it is none."""
    tables, where = load(name_or_path, SHIPPED, "model")
    given = dict(check_names(DecoderModel, tables, where))
    given["attention"] = _attention(given["attention"], f"{where}: attention")
    given["experts"] = record(Experts, given["experts"], f"{where}: experts")
    return record(DecoderModel, given, where)


def _attention(table: Any, where: str) -> Latent | Grouped:
    kinds: dict[object, type[Latent] | type[Grouped]] = {"mla": Latent, "gqa": Grouped}
    if not isinstance(table, dict) or "kind" not in table:
        raise ConfigError(f"{where}: kind is missing: {must_be_one_of(None, kinds)}")
    others = dict(table)
    kind = others.pop("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{where}: kind={kind!r}: {must_be_one_of(kind, kinds)}")
    return record(kinds[kind], others, where)
