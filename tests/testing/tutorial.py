"""Runs a page such as docs/tutorial.md as a reader would, in an empty folder, and compares what comes out.

Blocks are taken in order.  A ``python`` block that begins with ``# name.py`` is added to that file, one with ``>>>`` is
run as a session, a ``text`` block is what the session before it prints last, a ``diff`` block changes the file that has
its lines (and begins a new session), a ``console`` block is a command, ``yaml`` is for other tests.  Seconds and
numbers of states are not compared.
"""

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

UPDATE = "XCCL_EMU_UPDATE_TUTORIAL"
"""Set to write the outputs into the page anew."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = ((re.compile(r"\d+ states"), "N states"), (re.compile(r" in [\d.]+s( \(.*\))?"), " in Ns"))


def normal(text: str) -> str:
    """The text with what may differ made equal."""
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text


class _Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(normal(want), normal(got), optionflags)


@dataclass
class Tutorial:
    """The tutorial on its way through."""

    text: str
    folder: Path
    environment: dict[str, str]
    pytest_arguments: list[str]
    session: dict[str, Any] = field(default_factory=dict)
    examples: int = 0
    differences: list[str] = field(default_factory=list)
    """For each output that is not as printed, what came instead."""
    modules: set[str] = field(default_factory=set)
    printed: str = ""
    """By the last example of a session, which says nothing of it: the next block must."""

    def run(self) -> str:
        """Take all blocks; returns the text with the outputs as they were."""
        kinds: dict[str, Callable[[str], str]] = {
            "python": self._python, "text": self._text, "diff": self._diff, "console": self._console, "yaml": str,
        }  # fmt: skip
        try:
            return _BLOCK.sub(lambda block: f"```{block[1]}\n{kinds[block[1]](block[2])}```", self.text)
        finally:
            self._forget()

    def _text(self, block: str) -> str:
        printed, self.printed = self.printed, ""
        if normal(block) != normal(printed):
            self.differences.append(f"should print\n{block}and prints\n{printed}")
        return printed

    def _python(self, block: str) -> str:
        name = re.match(r"# (\w+\.py)\n", block)
        if name is None:
            return self._session(block)
        path = self.folder / name[1]
        before = path.read_text() + "\n\n" if path.exists() else ""
        path.write_text(before + block.removeprefix(name[0]))
        self.modules.add(path.stem)
        return block

    def _session(self, block: str) -> str:
        assert not self.printed, f"no text block has what is printed:\n{self.printed}"
        test = doctest.DocTestParser().get_doctest(block, self.session, "tutorial", None, 0)
        wanted = {example.lineno: example.want for example in test.examples}
        runner = _Keeping(checker=_Checker(), verbose=False)
        runner.run(test, clear_globs=False)
        self.session = test.globs
        self.examples += len(test.examples)
        lines = block.splitlines(keepends=True)
        if test.examples and not test.examples[-1].want:
            self.printed = runner.got.pop(test.examples[-1].lineno, "")
        for example in reversed(test.examples):
            if example.lineno in runner.got:
                got = runner.got[example.lineno]
                self.differences.append(f"{example.source}should print\n{wanted[example.lineno]}and prints\n{got}")
                start = example.lineno + example.source.count("\n")
                lines[start : start + example.want.count("\n")] = [got]
        return "".join(lines)

    def _diff(self, block: str) -> str:
        old, new = ("".join(line[1:] for line in block.splitlines(True) if line[0] == sign) for sign in "-+")
        (path,) = [p for p in self.folder.glob("*.py") if p.read_text().count(old) == 1]
        path.write_text(path.read_text().replace(old, new))
        self.session = {}
        self._forget()
        return block

    def _forget(self) -> None:
        for name in self.modules:
            sys.modules.pop(name, None)

    def _console(self, block: str) -> str:
        command, wanted = block.split("\n", 1)
        program, *arguments = shlex.split(command.removeprefix("$ "))
        modules = {"pytest": ["pytest", *self.pytest_arguments], "xccl-emu": ["xccl_emu"]}
        line = [sys.executable, "-m", *modules[program], *arguments]
        done = subprocess.run(line, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300)
        self.examples += 1
        if normal(done.stdout) != normal(wanted):
            self.differences.append(f"{command}\nshould print\n{wanted}and prints\n{done.stdout}{done.stderr}")
            return f"{command}\n{done.stdout}"
        return block


class _Keeping(doctest.DocTestRunner):
    """Keeps what is printed where that is not what should be."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.got: dict[int, str] = {}

    def report_failure(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        self.got[example.lineno] = got

    def report_unexpected_exception(
        self, out: object, test: doctest.DocTest, example: doctest.Example, exc_info: Any
    ) -> None:
        raise exc_info[1]
