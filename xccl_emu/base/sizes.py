"""Sizes as users say them: with K, M or G, from a least to a most by a factor; and numbers of things in words."""

from xccl_emu.base.errors import ConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(name: str, text: str) -> int:
    """Bytes of such as ``512``, ``64K``, ``1.5M`` or ``1G`` (powers of 1024; a trailing B is allowed).

    Raises ConfigError, naming the option, for anything else and for what is no whole number of bytes above 0.
    """
    plain = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = plain[-1:] if plain[-1:] in ("K", "M", "G") else ""
    try:
        nbytes = float(plain.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        nbytes = 0.0
    if not 1 <= nbytes < 1 << 50 or nbytes != int(nbytes):
        raise ConfigError(f"{name} {text}: must be a size such as 512, 64K, 512MiB or 8GB, at least 1")
    return int(nbytes)


def sizes_from(begin: str, end: str, factor: int) -> list[int]:
    """Bytes of the size ``begin``, and each ``factor`` times the one before, up to the size ``end``.

    Raises ConfigError for what is no size, and if there are none or no end.
    """
    sizes, most = [parse_size("-b", begin)], parse_size("-e", end)
    if most < sizes[0]:
        raise ConfigError(f"-e {end}: must be at least -b {begin}")
    if factor < 2:
        raise ConfigError(f"-f {factor}: must be at least 2")
    while sizes[-1] * factor <= most:
        sizes.append(sizes[-1] * factor)
    return sizes


def size_text(nbytes: int) -> str:
    """Such as ``512 KB`` or ``9 MB``."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if nbytes >= unit and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B"


def parse_whole(name: str, text: str) -> list[int]:
    """Whole numbers above 0, separated by commas, each once; ConfigError, naming the option, for anything else."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ConfigError(f"{name} {text}: must be whole numbers above 0, separated by commas")
    return list(dict.fromkeys(int(word) for word in words))


def some(count: int, things: str) -> str:
    """Say a number of things: ``"1 schedule"``, ``"1,200 schedules"``."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"
