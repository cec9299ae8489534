"""From syntax trees to basic blocks: control flow around yields becomes jumps, subroutines are inlined."""

import ast
import functools
import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

from xccl_emu.base import words as w
from xccl_emu.lang import _flow
from xccl_emu.lang._resolve import CONSTRUCTORS, TURNS, Functions, Rewriter, bind, is_empty, plain, turn, value_of
from xccl_emu.lang._source import BUILTINS, RESERVED, Source, has_yield, is_range, read, yield_of
from xccl_emu.lang.operations import orders_of
from xccl_emu.lang.requests import CONDITION_WORDS, poll_any
from xccl_emu.lang.rights import Record, fields_of, made_by_namedtuple, words_of

RESULT_NAME = f"{RESERVED}result"
"""Name that the step function gives to the granted value; never a register."""


NOTHING, VECTOR_BARRIER = "nothing", "v_barrier"
"""Operations of sites that make no request: such a one has no effect, or one on hazards inside a core alone."""


@dataclass(frozen=True)
class Site(w.Printed):
    """The place of one request: what a report says about it.

    ``step``, ``sync`` and ``order`` are the request's keywords of these names; ``callers`` are the (file, line) of each
    ``yield from`` on the way to a subroutine, outermost first; ``used`` says whether the kernel takes what is granted,
    and ``looped_on`` whether a loop asks the same until it has what it waits for.
    """

    file: w.File
    line: w.Line
    text: str
    operation: w.Operation
    step: int
    sync: w.Sync
    callers: w.Callers = ()
    used: bool = True
    order: str = ""
    looped_on: bool = False

    def of(self, kernel: str) -> str:
        """In words, of a kernel by its name; a line that several files share with that from which it is called."""
        callers = (("/".join(Path(file).parts[-2:]), n) for file, n in self.callers[::-1] if file != self.file)
        called = next((f", called at {file}:{n}" for file, n in callers), "")
        step = f", step {self.step}" if self.step else ""
        sync = f", sync {self.sync!r}" if self.sync else ""
        return f"kernel {kernel} ({self.file}:{self.line}{called}{step}{sync}) `{self.text}`"


@dataclass(frozen=True)
class Simple:
    """A statement without yields, rewritten, and what it does to local names."""

    node: ast.stmt
    uses: frozenset[str]
    """Read before the statement itself surely assigns them."""
    kills: frozenset[str]
    """Surely assigned."""
    stores: frozenset[str]
    """Possibly assigned."""


@dataclass
class Jump:
    target: int


@dataclass
class Branch:
    test: ast.expr
    then: int
    orelse: int


@dataclass
class Ask:
    """Hand over a request, seven expressions or more, and go on at ``resume``."""

    words: "Words"
    site: int
    resume: int


@dataclass
class Done:
    value: ast.expr


Words: TypeAlias = tuple[ast.expr, ...]
Exit: TypeAlias = Jump | Branch | Ask | Done


@dataclass
class Block:
    body: list[Simple] = field(default_factory=list)
    exit: Exit | None = None


@dataclass(frozen=True)
class Loop:
    """A ``for`` that became blocks; ``plain``: its body leaves the variable alone."""

    variable: str
    after: int
    plain: bool


@dataclass
class Frame:
    """One function being lowered: the kernel itself, or a subroutine at one call."""

    source: Source
    rewriter: Rewriter
    callers: tuple[tuple[str, int], ...] = ()
    functions: tuple[FunctionType, ...] = ()
    result: str | None = None
    """What the call assigns the returned value to."""
    exit: int | None = None
    """Block after the call; None in the kernel itself."""
    loops: list[tuple[int, int]] = field(default_factory=list)
    """Where continue and break go."""


def is_local(name: str) -> bool:
    """Return whether a name in rewritten code is a local of the step function that the author's code made."""
    return name not in BUILTINS and name not in (RESULT_NAME, TURNS) and not name.startswith(f"{RESERVED}f")


PLACE = f"{RESERVED}place"
"""The local that says at which of `Builder.places` code is that may fail; nothing but a failure reads it."""


@functools.lru_cache(64)
def _waited_for(function: ast.FunctionDef) -> frozenset[str]:
    """Assignments of a request's result, as text, by which a ``while`` loop that has them goes on, or is left."""
    found = set[str]()
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.While)):
        inside = [*ast.walk(loop)]
        leaves = [node.test for node in inside if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Break)]
        decide = {name.id for test in (loop.test, *leaves) for name in _flow.names(test, ast.Load)}
        asks = [node for node in inside if isinstance(node, ast.Assign) and isinstance(node.value, ast.Yield)]
        found |= {ast.unparse(node) for node in asks if decide & {name.id for name in _flow.names(node, ast.Store)}}
    return frozenset(found)


class _Local:
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and is_local(name)


def simple(node: ast.stmt) -> Simple:
    """Wrap a rewritten statement with what it reads and assigns."""
    uses: set[str] = set()
    flow = _flow.Flow(_Local(), lambda name: uses.add(name.id))
    stores = frozenset(n.id for n in _flow.names(node, ast.Store))
    kills = flow.run([node], frozenset())
    return Simple(node, frozenset(uses), stores if kills is None else kills, stores)


class Builder:
    """Lowers one kernel; ``merged`` are the ordinals of the loops whose variable is its own counter."""

    def __init__(self, source: Source, merged: Collection[int] = ()) -> None:
        self.functions = Functions()
        self.blocks: list[Block] = []
        self.sites: list[Site] = []
        self.places: list[Site] = []
        """Statements whose arithmetic may fail."""
        self.loops: list[Loop] = []
        self._merged = merged
        self._calls = 0
        self._bodies: list[tuple[int, tuple[ast.stmt, Frame]]] = []
        """The first block of each loop's body, and where the loop is."""
        frame = Frame(source, Rewriter(source, kernel_locals(source), self.functions), functions=(source.function,))
        self._here: tuple[ast.stmt, Frame] = source.tree, frame
        """The statement that is being lowered, and the function that it is in."""
        self._current: int | None = self._new()
        self._sequence(source.tree.body, frame)
        self._leave(Done(ast.Constant(0)))
        for body, here in self._bodies:
            if self._turns(body):
                self._here = here
                self.blocks[body].body[:0] = map(simple, self._turn(here[0].lineno))

    # ---- blocks

    def _turns(self, body: int) -> bool:
        """Does a way lead from a block back to it, without a request?"""
        seen, todo = set[int](), [body]
        while todo:
            how = self.blocks[todo.pop()].exit
            fresh = set(() if how is None or isinstance(how, Ask) else targets(how)) - seen
            seen |= fresh
            todo += fresh
        return body in seen

    def _turn(self, line: int) -> list[ast.stmt]:
        counts = turn()
        return [ast.fix_missing_locations(node) for node in (*self._mark(line, *counts), *counts)]

    def _new(self) -> int:
        self.blocks.append(Block())
        return len(self.blocks) - 1

    def _leave(self, how: Exit, then: int | None = None) -> None:
        """End the open block and go on writing in block ``then``."""
        if self._current is not None:
            self._write(self._mark(self._here[0].lineno, *operands_of(how)))
            self.blocks[self._current].exit = how
        self._current = then

    def _go_on(self, block: int) -> None:
        """Go on writing in a block, if anything leads there."""
        entered = any(block in targets(b.exit) for b in self.blocks if b.exit is not None)
        self._current = block if entered else None

    def _append(self, node: ast.stmt) -> None:
        self._write(self._marked(node, self._here[0].lineno))

    def _write(self, nodes: Sequence[ast.stmt]) -> None:
        assert self._current is not None
        self.blocks[self._current].body += [simple(ast.fix_missing_locations(node)) for node in nodes]

    def _marked(self, node: ast.stmt, line: int) -> list[ast.stmt]:
        """Return a statement with `PLACE` set before each part whose arithmetic may fail."""
        if not isinstance(node, ast.If | ast.While | ast.For):
            return [*self._mark(line, node), node]
        head = node.iter if isinstance(node, ast.For) else node.test
        node.body = [part for s in node.body for part in self._marked(s, s.lineno)]
        if not isinstance(node, ast.If):
            node.body[:0] = self._turn(line)
        node.orelse = [part for s in node.orelse for part in self._marked(s, s.lineno)]
        if isinstance(node, ast.While):
            node.body += self._mark(line, head)
        return [*self._mark(line, head), node]

    def _mark(self, line: int, *nodes: ast.AST) -> list[ast.stmt]:
        if not any(_flow.may_fail(node) for node in nodes):
            return []
        frame = self._here[1]
        place = Site(frame.source.file, line, frame.source.line(line), "arithmetic", 0, "", frame.callers)
        if place not in self.places:
            self.places.append(place)
        return [ast.Assign([ast.Name(PLACE, ast.Store())], ast.Constant(self.places.index(place)), lineno=0)]

    def _assign(self, name: str, value: ast.expr) -> None:
        self._append(ast.Assign([ast.Name(name, ast.Store())], value, lineno=0))

    # ---- statements

    def _sequence(self, statements: Sequence[ast.stmt], frame: Frame) -> None:
        for s in statements:
            if self._current is None:
                return
            if is_empty(s):
                continue
            self._here = s, frame
            if _is_whole(s):
                self._append(frame.rewriter.statement(s))
            elif (node := yield_of(s)) is not None:
                self._yield(s, node, frame)
            else:
                self._control(s, frame)

    def _control(self, s: ast.stmt, frame: Frame) -> None:
        match s:
            case ast.If():
                self._if(s, frame)
            case ast.While():
                self._while(s, frame)
            case ast.For():
                self._for(s, frame)
            case ast.Continue():
                self._leave(Jump(frame.loops[-1][0]))
            case ast.Break():
                self._leave(Jump(frame.loops[-1][1]))
            case ast.Return():
                self._return(s, frame)
            case _:
                raise frame.source.refuse(s, f"{type(s).__name__} cannot be lowered")

    def _if(self, s: ast.If, frame: Frame) -> None:
        test = frame.rewriter.expression(s.test)
        if isinstance(test, ast.Constant):
            self._sequence(s.body if test.value else s.orelse, frame)
            return
        then, orelse, after = self._new(), self._new(), self._new()
        self._leave(Branch(test, then, orelse), then)
        self._sequence(s.body, frame)
        self._leave(Jump(after), orelse)
        self._sequence(s.orelse, frame)
        self._leave(Jump(after))
        self._go_on(after)

    def _while(self, s: ast.While, frame: Frame) -> None:
        head, body, after = self._new(), self._new(), self._new()
        self._leave(Jump(head), head)
        test = frame.rewriter.expression(s.test)
        if isinstance(test, ast.Constant):
            self._leave(Jump(body if test.value else after), body if test.value else None)
        else:
            self._leave(Branch(test, body, after), body)
        self._body(s.body, frame, head, after)
        self._leave(Jump(head))
        self._go_on(after)

    def _body(self, body: Sequence[ast.stmt], frame: Frame, go_on: int, after: int) -> None:
        if self._current is not None:
            self._bodies.append((self._current, self._here))
        frame.loops.append((go_on, after))
        self._sequence(body, frame)
        frame.loops.pop()

    def _for(self, s: ast.For, frame: Frame) -> None:
        if not isinstance(s.target, ast.Name):
            raise frame.source.refuse(s.target, "a for loop around yields or return has one name as its variable")
        start, stop, step = self._range(s, frame)
        variable = frame.rewriter.stored(s.target.id)
        number = len(self.loops)
        counter = variable if number in self._merged else f"{RESERVED}i{number}_{s.target.id}"
        stored = {n.id for child in s.body for n in _flow.names(child, ast.Store)}
        if not _is_stable(stop, {frame.rewriter.stored(n) for n in stored | {s.target.id}}):
            self._assign(f"{RESERVED}stop{number}_{s.target.id}", stop)
            stop = ast.Name(f"{RESERVED}stop{number}_{s.target.id}", ast.Load())
        self._assign(counter, start)
        head, body, advance, after = (self._new() for _ in range(4))
        self.loops.append(Loop(variable, after, s.target.id not in stored))
        self._leave(Jump(head), head)
        test = ast.Compare(ast.Name(counter, ast.Load()), [ast.Lt() if step > 0 else ast.Gt()], [stop])
        self._leave(Branch(test, body, after), body)
        if counter != variable:
            self._assign(variable, ast.Name(counter, ast.Load()))
        self._body(s.body, frame, advance, after)
        self._leave(Jump(advance), advance)
        self._append(ast.AugAssign(ast.Name(counter, ast.Store()), ast.Add(), ast.Constant(step)))
        self._leave(Jump(head), after)

    def _range(self, s: ast.For, frame: Frame) -> tuple[ast.expr, ast.expr, int]:
        """Return start, stop and step of a loop over range."""
        if not is_range(s.iter) or value_of(frame.source, s.iter.func) is not range:
            raise frame.source.refuse(s.iter, "a for loop around yields or return goes over range(...) only")
        given = [frame.rewriter.expression(a) for a in s.iter.args]
        bounds = given if len(given) > 1 else [ast.Constant(0), *given]
        start, stop, step = (*bounds, ast.Constant(1))[:3]
        if not isinstance(step, ast.Constant) or not isinstance(step.value, int) or step.value == 0:
            raise frame.source.refuse(s.iter, "the step of range must be an integer literal other than 0")
        return start, stop, step.value

    def _return(self, s: ast.Return, frame: Frame) -> None:
        if frame.exit is None:
            self._leave(Done(frame.rewriter.expression(s.value) if s.value is not None else ast.Constant(0)))
            return
        if s.value is not None:
            value = frame.rewriter.expression(s.value)
            if frame.result is not None:
                self._assign(frame.result, value)
            else:
                self._append(ast.Expr(value))
        elif frame.result is not None:
            raise frame.source.refuse(s, f"the caller of {frame.source.tree.name!r} takes a value, not given here")
        self._leave(Jump(frame.exit))

    # ---- yields

    def _yield(self, s: ast.stmt, node: ast.Yield | ast.YieldFrom, frame: Frame) -> None:
        call = node.value
        assert isinstance(call, ast.Call)
        target = s.targets[0] if isinstance(s, ast.Assign) else getattr(s, "target", None)
        result = frame.rewriter.stored(target.id) if isinstance(target, ast.Name) else None
        value = plain(value_of(frame.source, call.func))
        if isinstance(node, ast.YieldFrom):
            self._inline(node, call, value, result, frame)
            return
        if not isinstance(value, FunctionType) or value not in CONSTRUCTORS:
            hint = "; use yield from" if inspect.isgeneratorfunction(value) else ""
            raise frame.source.refuse(node, f"{ast.unparse(call.func)!r} is not a request constructor{hint}")
        words, step, sync, order = self._request(value, call, frame)
        file, text, used = frame.source.file, frame.source.line(node.lineno), result is not None
        looped_on = ast.unparse(s) in _waited_for(frame.source.tree)
        site = Site(file, node.lineno, text, CONSTRUCTORS[value], step, sync, frame.callers, used, order, looped_on)
        self.sites.append(site)
        resume = self._new()
        self._leave(Ask(words, len(self.sites) - 1, resume), resume)
        if result is not None:
            self._assign(result, ast.Name(RESULT_NAME, ast.Load()))

    def _request(self, constructor: FunctionType, call: ast.Call, frame: Frame) -> tuple[Words, int, str, str]:
        """Return the words of a request, and its step, sync and order."""
        arguments: dict[str, Any] = bind(constructor, call, frame.source, frame.rewriter.argument)
        step, sync, order = (arguments.pop(name, ast.Constant("")) for name in ("step", "sync", "order"))
        for name, given, kind in (("step", step, int), ("sync", sync, str), ("order", order, str)):
            if not isinstance(given, ast.Constant) or not isinstance(given.value, kind):
                raise frame.source.refuse(call, f"{name} must be a literal, not {ast.unparse(given)!r}")
        if order.value not in (known := orders_of(CONSTRUCTORS[constructor])):
            raise frame.source.refuse(call, f"order={order.value!r}: must be one of {', '.join(known[1:])}")
        for name, given in arguments.items():
            if constructor is poll_any:
                arguments[name] = _condition(name, given, call, frame.source)
            elif isinstance(given, Record) or (isinstance(given, ast.Constant) and not isinstance(given.value, int)):
                what = "a record" if isinstance(given, Record) else ast.unparse(given)
                raise frame.source.refuse(call, f"{name} must be an integer, not {what}")
        # A constructor only places its arguments, so it can be given expressions and places those.
        words = tuple(w if isinstance(w, ast.expr) else ast.Constant(w) for w in constructor(**arguments))
        return words, step.value, sync.value, order.value

    def _kept(self, record: Record, prefix: str) -> Record:
        """Return a record whose fields are names and literals: what has to be computed is computed once, here."""
        fields = dict(record.fields)
        for name, value in record.fields.items():
            if not isinstance(value, ast.Constant | ast.Name):
                self._assign(prefix + name, value)
                fields[name] = ast.Name(prefix + name, ast.Load())
        return Record(record.kind, fields)

    def _inline(self, node: ast.YieldFrom, call: ast.Call, function: Any, result: str | None, frame: Frame) -> None:
        label = ast.unparse(call.func)
        if not isinstance(function, FunctionType) or not inspect.isgeneratorfunction(function):
            raise frame.source.refuse(node, f"{label!r} is not a subroutine (a generator function)")
        if function in frame.functions:
            raise frame.source.refuse(node, f"{label!r} calls itself; recursion cannot be lowered")
        source = read(function)
        self._calls += 1
        prefix = f"{RESERVED}s{self._calls}_{source.tree.name}_"
        local: dict[str, ast.expr | Record] = {n: ast.Name(prefix + n, ast.Load()) for n in source.local}
        arguments = bind(function, call, frame.source, frame.rewriter.argument)
        for number, (name, value) in enumerate(arguments.items()):
            if isinstance(value, Record) or name in source.records:
                local[name] = self._kept(_passed(source, name, value, node, frame), f"{prefix}{number}_")
            elif name not in source.stored and isinstance(value, ast.Constant | ast.Name):
                local[name] = value  # Nothing can change a caller's local while the subroutine runs: no copy needed.
            elif isinstance(value, ast.Constant) and not isinstance(value.value, int):
                raise source.refuse(source.tree, f"{source.tree.name!r} assigns its parameter {name!r}, a string here")
            else:
                self._assign(prefix + name, value)
        after = self._new()
        inner = Frame(
            source, Rewriter(source, local, self.functions), (*frame.callers, (frame.source.file, node.lineno)),
            (*frame.functions, function), result, after,
        )  # fmt: skip
        self._sequence(source.tree.body, inner)
        if self._current is not None and result is not None:
            raise source.refuse(source.tree, f"{label!r} may end without the value that its caller takes")
        self._leave(Jump(after))
        self._go_on(after)


def kernel_local(name: str) -> str:
    """Return what a local of the kernel itself is called in the lowered text."""
    return f"{RESERVED}v_{name}" if name in BUILTINS else name


def kernel_words(source: Source) -> dict[str, str]:
    """Return what each integer that a kernel takes is called in the lowered text, and its author's name for it."""
    number = {name: i for i, name in enumerate(source.parameters)}
    return {
        kernel_local(name) if field is None else f"{RESERVED}p{number[name]}_{field}": name
        if field is None
        else f"{name}.{field}"
        for name, field in words_of(source.parameters, source.records)
    }


def kernel_locals(source: Source) -> dict[str, ast.expr | Record]:
    """Return what each local name of the kernel itself becomes."""
    lowered = {word: ast.Name(name, ast.Load()) for name, word in kernel_words(source).items()}
    local: dict[str, ast.expr | Record] = {n: ast.Name(kernel_local(n), ast.Load()) for n in source.local}
    for name, kind in source.records.items():
        local[name] = Record(kind, {field: lowered[f"{name}.{field}"] for field in fields_of(kind)})
    return local


def operands_of(how: Exit) -> tuple[ast.expr, ...]:
    """Return what is computed at an exit."""
    match how:
        case Branch(test, _, _):
            return (test,)
        case Ask(words, _, _):
            return words
        case Done(value):
            return (value,)
    return ()


def targets(how: Exit) -> tuple[int, ...]:
    """Return the blocks that an exit leads to."""
    match how:
        case Jump(target):
            return (target,)
        case Branch(_, then, orelse):
            return (then, orelse)
        case Ask(_, _, resume):
            return (resume,)
    return ()


def _passed(source: Source, name: str, value: ast.expr | Record, node: ast.AST, frame: Frame) -> Record:
    """Return the record that a subroutine is passed for a parameter, which must have the fields of the same class."""
    want = source.records.get(name)
    if want is None:
        raise frame.source.refuse(node, f"{source.tree.name!r} takes an integer as {name!r}, not a record")
    if not isinstance(value, Record) or made_by_namedtuple(value.kind) is not made_by_namedtuple(want):
        given = value.kind.__name__ if isinstance(value, Record) else "an integer"
        raise frame.source.refuse(node, f"{source.tree.name!r} takes a {want.__name__} as {name!r}, not {given}")
    return value


def _condition(name: str, given: ast.expr | Record, call: ast.Call, source: Source) -> list[ast.expr]:
    """Return the words of a condition of `poll_any`."""
    if not isinstance(given, ast.Tuple) or len(given.elts) != CONDITION_WORDS:
        raise source.refuse(call, f"{name} must be written as (address, comparison, value)")
    return given.elts


def _is_stable(stop: ast.expr, stored: set[str]) -> bool:
    """Return whether the end of a range can be looked at again on every turn."""
    return isinstance(stop, ast.Constant) or (isinstance(stop, ast.Name) and stop.id not in stored)


def _is_whole(s: ast.stmt) -> bool:
    """Return whether a statement can stay as it is: no yield in it, and no jump out of it."""
    return not has_yield(s) and not _jumps_out(s, in_loop=False)


def _jumps_out(s: ast.stmt, in_loop: bool) -> bool:
    match s:
        case ast.Return():
            return True
        case ast.Break() | ast.Continue():
            return not in_loop
        case ast.If(body=body, orelse=orelse):
            return any(_jumps_out(x, in_loop) for x in (*body, *orelse))
        case ast.While(body=body) | ast.For(body=body):
            return any(_jumps_out(x, True) for x in body)
    return False
