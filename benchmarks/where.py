"""Where the time of a search's transitions goes: samples by Linux' perf, by the device module of the function.

python benchmarks/where.py           print the table
python benchmarks/where.py --page    write it to docs/records/reach.md

Numba's code has no names for perf, so they are read from the object files that are kept on disk.  A function that is
inlined counts where it is inlined.
"""

import bisect
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "records" / "reach.md"
JOBS = ("transitions of dispatch, merged", "transitions of all-reduce-ring, merged")
RUNS = 5
PARTS: Mapping[str, str] = {
    "what has changed: copied, compared, hashed, logged, put back": r"check\.search\.device\.(kept|checker_state)\.",
    "an action as the checker sees it": r"check\.search\.device\.moves\.",
    "an action of the machine, the kernel's step in it": r"machine\.|check\.search\.device\.record\.|.*\bstep\b",
    "order inside of a core": r"check\.search\.device\.(inside|clocks)\.",
    "what is next, what is local": r"check\.search\.device\.run_local\.",
    "which state is known, which transition is next": r"check\.search\.device\.dfs\.",
    "who uses which granule, and how": r"check\.search\.device\.(classify|granules|padding|fields)\.",
    "races": r"check\.search\.device\.races\.",
    "libc, which copies": r"libc",
}
_FUNCTION, _SYMBOLS, _SYMBOL, _SECTION = 2, 2, "<IBBHQQ", "<IIQQQQIIQQ"
Found = tuple[int, int, str]


def _symbols(code: bytes) -> Iterator[tuple[str, int, int, int]]:
    """Functions of an object file: name, section, offset and size."""
    (at,), (size, count) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HH", code, 0x3A)
    sections = [struct.unpack_from(_SECTION, code, at + k * size) for k in range(count)]
    for section in (each for each in sections if each[1] == _SYMBOLS):
        texts = sections[section[6]][4]
        for place in range(section[4], section[4] + section[5], struct.calcsize(_SYMBOL)):
            name, info, _, part, offset, nbytes = struct.unpack_from(_SYMBOL, code, place)
            if info & 15 == _FUNCTION:
                yield code[texts + name : code.index(b"\0", texts + name)].decode(), part, offset, nbytes


def _plain(name: str) -> str:
    """The dotted name in a mangled one."""
    parts, rest = [], name.removeprefix("_ZN")
    while found := re.match(r"\d+", rest):
        size, rest = int(found[0]), rest[found.end() :]
        parts.append(rest[:size])
        rest = rest[size:]
    return ".".join(parts).removeprefix("xccl_emu.") or name


def _remembering() -> list[Any]:
    """From now on keep the libraries that Numba loads, each with its object file."""
    from numba.core.codegen import CPUCodegen

    kept, usual = [], CPUCodegen.unserialize_library

    def load(self: Any, serialized: Any) -> Any:
        library = usual(self, serialized)
        kept.append((library, serialized[2][0]))
        return library

    CPUCodegen.unserialize_library = load
    return kept


def _functions(libraries: list[Any]) -> list[Found]:
    """Address, size and name of each function, by rising address."""
    found = []
    for library, code in libraries:
        symbols, starts = [*_symbols(code)], dict[int, int]()
        for name, part, offset, _ in symbols:
            if address := library._codegen._engine._ee.get_function_address(name):
                starts.setdefault(part, address - offset)
        found += [(starts[part] + at, size, _plain(name)) for name, part, at, size in symbols if part in starts]
    return sorted(found)


def _mapped(address: int) -> str:
    """The file, if any, that is mapped where an address is."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        first, _, end = line.split()[0].partition("-")
        if int(first, 16) <= address < int(end, 16):
            return line.split()[-1]
    return ""


def sampled(libraries: list[Any], name: str) -> tuple[Counter[str], float]:
    """Samples by what `PARTS` says, and the nanoseconds of a transition."""
    import since_jobs

    job = since_jobs.JOBS[name]()
    job()
    with tempfile.NamedTemporaryFile() as data:
        words = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "3000", "-o", data.name, "-p"]
        process = subprocess.Popen([*words, str(os.getpid())], stderr=subprocess.DEVNULL)
        time.sleep(1)
        rate = max(job() for _ in range(RUNS))
        process.send_signal(signal.SIGINT)
        process.wait()
        said = subprocess.run(
            ["perf", "script", "-i", data.name, "-F", "ip"], capture_output=True, text=True, check=True
        )
    functions = _functions(libraries)
    starts, counted = [each[0] for each in functions], Counter[str]()
    for address in (int(each, 16) for each in said.stdout.split()):
        start, size, where = functions[bisect.bisect(starts, address) - 1]
        counted[part_of(where if start <= address < start + size else _mapped(address))] += 1
    return counted, 1e9 / rate


def part_of(name: str) -> str:
    """The row of a function."""
    return next((part for part, pattern in PARTS.items() if re.search(pattern, name)), "the rest")


def main() -> None:
    """Print the table, or write it."""
    sys.path.insert(0, str(ROOT / "tools"))
    from pages import between, table

    libraries = _remembering()
    found = [sampled(libraries, name) for name in JOBS]
    head = ("where", *(name.removeprefix("transitions of ").removesuffix(", merged") for name in JOBS))
    rows = [(part, *(f"{of[part] / of.total():.0%}" for of, _ in found)) for part in (*PARTS, "the rest")]
    rows.append(("CPU ns of a transition, samples taken meanwhile", *(f"{ns:,.0f}" for _, ns in found)))
    if "--page" in sys.argv:
        PAGE.write_text(between(PAGE.read_text("utf-8"), "where", table(head, rows)), "utf-8")
    else:
        print(table(head, rows))


if __name__ == "__main__":
    main()
