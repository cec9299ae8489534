"""Random kernels as source text, for Hypothesis: every name is assigned before it is read, every loop ends."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

PRELUDE = """
K = 7
TABLE = (3, -1, 4)

def mix(a, b=2):
    for j in range(b % 3):
        a = (a * 5 + j) % 97
    return a if a != b else -a

"""
NAMES = ("a", "b", "c", "d")
BINARY = ("{} + {}", "{} - {}", "({} * {}) % 251", "{} & {}", "{} | {}", "{} ^ {}", "max({}, {})", "min({}, {})")
BINARY += ("mix({}, b={})", "{} < {}", "{} != {}", "({} and {})", "({} or {})", "{} // {}", "{} % {}", "{} >> ({} & 7)")
UNARY = ("-{}", "not {}", "abs({})", "mix({})", "({} << 2) % 509", "TABLE[{} % 3]", "(K if {} else 5)")
REQUESTS = (
    "load({}, step={s})",
    "store({}, {}, step={s})",
    "quiet(step={s})",
    "poll_ge({}, {}, step={s}, sync='p{s}')",
)


@dataclass
class Writer:
    """Writes one function; ``subroutines`` are those that it may call."""

    draw: st.DrawFn
    subroutines: tuple[str, ...]
    lines: list[str] = field(default_factory=list)
    loops: int = 0
    requests: int = 0

    def pick(self, *options: str) -> str:
        """Draw one of the options."""
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        """Draw whether something happens; shrinks towards not."""
        return self.draw(st.integers(0, 99)) >= 100 - percent

    def put(self, depth: int, text: str) -> None:
        """Write one line."""
        self.lines.append("    " * depth + text)

    def expression(self, known: set[str], size: int = 2) -> str:
        """Draw an expression over names that are assigned."""
        kind = self.draw(st.integers(0, 3)) if size else 0
        if kind <= 1:
            return self.pick(*sorted(known)) if known and self.chance(70) else str(self.draw(st.integers(-3, 9)))
        if kind == 2:
            return "(" + self.pick(*UNARY).format(self.expression(known, size - 1)) + ")"
        form = self.pick(*BINARY)
        return "(" + form.format(self.expression(known, size - 1), self.expression(known, size - 1)) + ")"

    def request(self, known: set[str]) -> str:
        """Draw a request."""
        self.requests += 1
        form = self.pick(*REQUESTS)
        number = self.requests + 100 * len(self.subroutines)
        operands = [self.expression(known, 1) for _ in range(form.count("{}"))]
        return "yield " + form.format(*operands, s=number)

    def call(self, known: set[str]) -> str:
        """Draw a call of a subroutine."""
        arguments = [self.expression(known, 1) for _ in range(self.draw(st.integers(1, 2)))]
        keyword = [f"sync='{self.pick('x', 'y')}'"] if self.chance(50) else []
        return f"yield from {self.pick(*self.subroutines)}({', '.join(arguments + keyword)})"

    def block(self, depth: int, known: set[str], size: int, in_loop: bool) -> set[str] | None:
        """Write statements; return the names assigned behind them, or None if control does not get there."""
        for _ in range(self.draw(st.integers(1 + size, 3 + size))):
            left = self.statement(depth, known, size, in_loop)
            if left is None:
                return None
            known = left
        return known

    def statement(self, depth: int, known: set[str], size: int, in_loop: bool) -> set[str] | None:
        """Write one statement."""
        kinds = ["request", "take", "maybe", "assign", "augment", "return"]
        kinds += ["call"] * 2 * bool(self.subroutines) + ["if", "for", "while"] * bool(size) + ["jump"] * in_loop
        kind = self.pick(*kinds)
        if kind in ("if", "for", "while"):
            return getattr(self, kind + "_")(depth, known, size, in_loop)
        if kind == "request":
            self.put(depth, self.request(known))
        elif kind == "augment" and known:
            name = self.pick(*sorted(known))
            self.put(depth, f"{name} {self.pick('+=', '-=', '|=', '//=', '%=')} {self.expression(known)}")
            self.put(depth, f"{name} %= 1009")
        elif kind == "maybe" and known:
            self.put(depth, f"if {self.expression(known)}:")
            self.put(depth + 1, f"{self.pick(*sorted(known))} = {self.expression(known)}")
        elif kind == "return" and self.chance(30):
            self.put(depth, f"return {self.expression(known)}")
            return None
        elif kind == "jump":
            self.put(depth, self.pick("break", "continue"))
            return None
        else:
            name = self.pick(*NAMES)
            source = {"take": self.request, "call": self.call}.get(kind, self.expression)
            self.put(depth, f"{name} = {source(known)}")
            return known | {name}
        return known

    def end(self, known: set[str] | None) -> None:
        """End the function with a request and a value that show every name."""
        if known is not None:
            names = sorted(known)
            self.put(1, f"yield put({', '.join(names[:5])}, step=0)")
            self.put(1, f"return {' - '.join(names)}")

    def if_(self, depth: int, known: set[str], size: int, in_loop: bool) -> set[str] | None:
        """Write an if, perhaps with an else."""
        self.put(depth, f"if {self.expression(known)}:")
        then = self.block(depth + 1, known, size - 1, in_loop)
        orelse: set[str] | None = known
        if self.chance(50):
            self.put(depth, "else:")
            orelse = self.block(depth + 1, known, size - 1, in_loop)
        if then is None or orelse is None:
            return then if orelse is None else orelse
        return then & orelse

    def for_(self, depth: int, known: set[str], size: int, in_loop: bool) -> set[str]:
        """Write a for over a short range."""
        variable = self.pick(*NAMES, "i", "j")
        start, stop = self.expression(known, 1), self.expression(known, 1)
        step = self.pick("", ", 2", ", -1")
        self.put(depth, f"for {variable} in range({start} % 5, {stop} % 4{step}):")
        self.block(depth + 1, known | {variable}, size - 1, True)
        return known

    def while_(self, depth: int, known: set[str], size: int, in_loop: bool) -> set[str]:
        """Write a while that a counter of its own ends."""
        self.loops += 1
        counter = f"n{self.loops}"
        limit = self.draw(st.integers(0, 3))
        self.put(depth, f"{counter} = 0")
        endless = self.chance(30)
        self.put(
            depth, "while True:" if endless else f"while {counter} < {limit} and {self.expression(known, 1)} != 4:"
        )
        if endless:
            self.put(depth + 1, f"if {counter} == {limit}:")
            self.put(depth + 2, "break")
        self.put(depth + 1, f"{counter} += 1")
        self.block(depth + 1, known, size - 1, True)
        return known


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Draw a module with a kernel ``k(a, b)`` and up to two subroutines."""
    text = PRELUDE
    subroutines: tuple[str, ...] = ()
    for number in range(draw(st.integers(0, 2))):
        writer = Writer(draw, subroutines)
        writer.put(1, "yield quiet(step=0, sync=sync)")
        known = writer.block(1, {"p", "q"}, 2, False)
        writer.end(known)
        text += f"def sub{number}(p, q=K, sync='none'):\n" + "\n".join(writer.lines) + "\n\n"
        subroutines += (f"sub{number}",)
    writer = Writer(draw, subroutines)
    writer.put(1, "c = yield load(a, step=0)")
    writer.end(writer.block(1, {"a", "b", "c"}, 3, False))
    return text + "@kernel\ndef k(a, b):\n" + "\n".join(writer.lines) + "\n"
