"""What LLVM gets of ranges, in the kernel language itself."""


def range_length(start: int, stop: int, step: int) -> int:
    """Return how many elements a range has."""
    if step > 0:
        return (stop - start - 1) // step + 1 if start < stop else 0
    return (start - stop - 1) // -step + 1 if start > stop else 0


def range_at(index: int, start: int, stop: int, step: int) -> int:
    """The element of a range at an index."""
    length = range_length(start, stop, step)
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise IndexError("range object index out of range")
    return start + index * step


def in_range(value: int, start: int, stop: int, step: int) -> bool:
    """Return whether a range has a value."""
    if step > 0:
        return start <= value < stop and (value - start) % step == 0
    return stop < value <= start and (start - value) % -step == 0


FUNCTIONS = (range_length, range_at, in_range)
