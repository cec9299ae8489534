"""The shape of a step function: liveness, registers, and the trees of blocks that are its cases.

A local that is live across a yield has a register, a word of the core; any other stays a plain local of the step
function.  Blocks with one way in are nested into the block before them, so what remains (a tree of blocks that ends
in jumps, requests and returns) loads the registers it reads when it begins and stores those it changed where it ends.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from xccl_emu.lang._blocks import Ask, Block, Branch, Builder, Done, Exit, Jump, is_local, kernel_words, targets
from xccl_emu.lang._flow import names
from xccl_emu.lang._resolve import TURNS
from xccl_emu.lang._source import Source

MAX_NESTED = 12
"""Blocks nested deeper than this become cases of their own (Python's parser has a limit)."""


@dataclass(frozen=True)
class BlockPath:
    """One way through a tree of blocks, to the block whose exit leaves the tree."""

    block: int
    target: int | None
    changed: frozenset[str]
    missing: frozenset[str]
    """Names that must have a value when the tree begins: read, or perhaps left alone, on this way."""


@dataclass
class BlockTree:
    root: int
    members: set[int] = field(default_factory=set)
    paths: list[BlockPath] = field(default_factory=list)


def local_names(node: ast.AST) -> frozenset[str]:
    """Return the locals that an expression reads."""
    return frozenset(n.id for n in names(node, ast.Load) if is_local(n.id))


def reads(how: Exit | None) -> frozenset[str]:
    """Return the locals that an exit reads."""
    match how:
        case Branch(test, _, _):
            return local_names(test)
        case Ask(words, _, _):
            return frozenset[str]().union(*map(local_names, words))
        case Done(value):
            return local_names(value)
    return frozenset()


def flow(block: Block) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a block reads before it assigns them, and those that it surely assigns."""
    used, killed = reads(block.exit), frozenset[str]()
    for s in reversed(block.body):
        used, killed = (used - s.kills) | s.uses, killed | s.kills
    return used, killed


def liveness(blocks: list[Block]) -> list[frozenset[str]]:
    """Return the names that are live where each block begins."""
    flows = [flow(block) for block in blocks]
    following = [targets(block.exit) if block.exit is not None else () for block in blocks]
    live: list[frozenset[str]] = [frozenset()] * len(blocks)
    changed = True
    while changed:
        changed = False
        for b in range(len(blocks) - 1, -1, -1):
            used, killed = flows[b]
            at = used | (frozenset[str]().union(*(live[t] for t in following[b])) - killed)
            if at != live[b]:
                live[b], changed = at, True
    return live


def build(source: Source) -> Builder:
    """Build the blocks of a kernel; a loop variable that nobody reads after its loop is the loop's own counter."""
    first = Builder(source)
    live = liveness(first.blocks)
    merged = {n for n, loop in enumerate(first.loops) if loop.plain and loop.variable not in live[loop.after]}
    return Builder(source, merged) if merged else first


class KernelShape:
    """The cases of a built kernel, each a tree of blocks, and what each keeps in registers."""

    def __init__(self, builder: Builder, source: Source) -> None:
        parameters = tuple(kernel_words(source))
        self.blocks = builder.blocks
        self._skip_empty()
        self.live = liveness(self.blocks)
        reached = set(self._reach(0))
        resumed = [x.exit.resume for b, x in enumerate(self.blocks) if b in reached and isinstance(x.exit, Ask)]
        kept = frozenset[str]().union(*(self.live[r] for r in resumed)) - set(parameters)
        order = [n.id for b in sorted(reached) for s in self.blocks[b].body for n in names(s.node, ast.Store)]
        ordered = [n for n in dict.fromkeys(order) if n in kept]
        self.registers = {name: i for i, name in enumerate((*parameters, *ordered))}
        self._make_trees(reached, resumed)
        self.pc = {root: i for i, root in enumerate(self.trees)}
        self.dirty = self._dirty(parameters)

    @property
    def turns(self) -> bool:
        """Return whether there are loops that may go on without a request."""
        return any(TURNS in s.stores for block in self.blocks for s in block.body)

    # ---- trees

    def _skip_empty(self) -> None:
        def final(b: int) -> int:
            seen = set()
            while b not in seen and not self.blocks[b].body and isinstance(how := self.blocks[b].exit, Jump):
                seen.add(b)
                b = how.target
            return b

        for block in self.blocks:
            match block.exit:
                case Jump(target):
                    block.exit = Jump(final(target))
                case Branch(test, then, orelse):
                    block.exit = Branch(test, final(then), final(orelse))
                case Ask(words, site, resume):
                    block.exit = Ask(words, site, final(resume))

    def _successors(self, b: int) -> tuple[int, ...]:
        how = self.blocks[b].exit
        return () if how is None else targets(how)

    def _reach(self, start: int) -> Iterator[int]:
        seen, todo = {start}, [start]
        while todo:
            b = todo.pop()
            yield b
            fresh = [t for t in dict.fromkeys(self._successors(b)) if t not in seen]  # a branch may have one target
            seen.update(fresh)
            todo += fresh

    def _make_trees(self, reached: set[int], resumed: list[int]) -> None:
        ways = [t for b in reached for t in self._successors(b)]
        roots = {0, *resumed, *(b for b in reached if ways.count(b) > 1)}
        self.trees: dict[int, BlockTree] = {}
        todo = sorted(roots, reverse=True)
        while todo:
            tree = BlockTree(todo.pop())
            too_deep = self._grow(tree, tree.root, roots, 0)
            roots |= too_deep
            todo += sorted(too_deep, reverse=True)
            self.trees[tree.root] = tree
        for tree in self.trees.values():
            self._walk(tree, tree.root, frozenset(), frozenset(), frozenset())

    def _grow(self, tree: BlockTree, b: int, roots: set[int], depth: int) -> set[int]:
        tree.members.add(b)
        if depth == MAX_NESTED:
            return {t for t in self._successors(b) if t not in roots}
        deeper = isinstance(self.blocks[b].exit, Branch)
        found = set()
        for t in self._successors(b):
            if t not in roots:
                found |= self._grow(tree, t, roots, depth + deeper)
        return found

    def inside(self, tree: BlockTree, target: int) -> bool:
        """Return whether a jump to a block stays in the tree."""
        return target in tree.members and target != tree.root

    def _walk(
        self, tree: BlockTree, b: int, changed: frozenset[str], sure: frozenset[str], missing: frozenset[str]
    ) -> None:
        block = self.blocks[b]
        for s in block.body:
            missing |= s.uses - sure
            changed |= s.stores
            sure |= s.kills
        missing |= reads(block.exit) - sure
        inside = [t for t in self._successors(b) if self.inside(tree, t)]
        for t in inside:
            self._walk(tree, t, changed, sure, missing)
        for t in self._successors(b):
            if t not in inside:
                tree.paths.append(BlockPath(b, t, changed, missing | ((changed - sure) & self.live[t])))
        if isinstance(block.exit, Done):
            tree.paths.append(BlockPath(b, None, changed, missing))

    def in_order(self) -> Iterator[BlockTree]:
        """Yield the trees so that each but the first comes after one that leads to it."""
        for b in self._reach(0):
            if b in self.trees:
                yield self.trees[b]

    # ---- registers

    def _dirty(self, parameters: tuple[str, ...]) -> dict[int, frozenset[str]]:
        """Return the registers that may hold something other than 0 where each tree begins."""
        dirty: dict[int, frozenset[str]] = {root: frozenset() for root in self.trees}
        dirty[0] = frozenset(parameters)
        todo = list(self.trees)
        while todo:
            root = todo.pop()
            for path in self.trees[root].paths:
                if path.target is None:
                    continue
                kept = self._kept(path.target, path.changed)
                left = dirty[root] | kept
                if isinstance(self.blocks[path.block].exit, Ask):
                    left &= self.live[path.target]
                if not left <= dirty[path.target]:
                    dirty[path.target] |= left
                    todo.append(path.target)
        return dirty

    def _kept(self, target: int, changed: frozenset[str]) -> frozenset[str]:
        return changed & self.live[target] & self.registers.keys()

    def loads(self, tree: BlockTree) -> list[str]:
        """Return the registers that a tree reads when it begins."""
        wanted = frozenset[str]().union(*(p.missing for p in tree.paths)) & self.live[tree.root]
        return [n for n in self.registers if n in wanted]

    def stores(self, target: int, changed: frozenset[str]) -> list[str]:
        """Return the registers to write on the way to a block, of the names that were changed."""
        kept = self._kept(target, changed)
        return [n for n in self.registers if n in kept]

    def zeros(self, tree: BlockTree, resume: int | None) -> list[str]:
        """Return the registers to clear at a request that goes on at ``resume``, or at the end of the kernel."""
        dead = self.dirty[tree.root] - (frozenset() if resume is None else self.live[resume])
        return [n for n in self.registers if n in dead]
