"""Words that make the project's English hard to read: each folder has fewer of them from release to release."""

import ast
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTS = Path(__file__).with_name("words.toml")
UPDATE = "XCCL_EMU_UPDATE_WORDS"
"""Set to write the counts into `COUNTS`, which takes none that is larger."""

FOLDERS = ("xccl_emu", "kernels", "protocols", "docs", "corpus", "examples", "tools", "benchmarks")
WORDS = (
    "told", "tell", "tells", "anew", "whoever", "whomever", "beside", "behind", "stands", "of which", "goes by",
    "as of", "so many", "that of", "those of",
)  # fmt: skip
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)
_FENCE = re.compile(r"\bbehind (?:a|an|the|that|this|another|every|each|one)? ?fences?\b", re.IGNORECASE)
_FRAGMENT = re.compile(r"(?:What|How|As|By|Whether|Where|When|Who|Which|Whose)\b")
"""What a docstring begins with that has no subject and verb, most often."""


def files() -> Iterator[tuple[str, Path]]:
    """The files that a reader may open, with the name of their folder; no symlinks, records or tests."""
    for path in ROOT.glob("*.md"):
        if path.name != "CHANGELOG.md":
            yield ".", path
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            inner = path.relative_to(ROOT).parts
            linked = any((ROOT / Path(*inner[:n])).is_symlink() for n in range(1, len(inner) + 1))
            if path.suffix in {".py", ".md", ".h", ".c", ".cpp"} and not linked and "records" not in inner:
                yield "/".join(inner[:2]) if folder == "xccl_emu" and len(inner) > 2 else folder, path


def counted(path: Path) -> tuple[int, int]:
    """How many of the words, and docstrings of functions without subject and verb, a file has."""
    text = path.read_text("utf-8")
    words = len(_WORD.findall(_FENCE.sub("", text)))
    if path.suffix != ".py":
        return words, 0
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return words, sum(bool(_FRAGMENT.match(ast.get_docstring(node) or "")) for node in functions)


def test_hard_words_only_get_fewer() -> None:
    """No folder has more of the words, or of docstrings without subject and verb, than were recorded, nor fewer."""
    words, fragments = Counter[str](), Counter[str]()
    for folder, path in files():
        here = counted(path)
        words[folder] += here[0]
        fragments[folder] += here[1]
    recorded = tomllib.loads(COUNTS.read_text("utf-8")) if COUNTS.exists() else {}
    for name, now in (("words", words), ("fragments", fragments)):
        most = recorded.get(name, now)
        grown = {folder: (most.get(folder, 0), now[folder]) for folder in now if now[folder] > most.get(folder, 0)}
        assert grown == {}, f"{name}: more than recorded (before, now); say it with a subject and a verb"
    if os.environ.get(UPDATE):
        lines = (
            f"\n[{name}]\n" + "".join(f'"{folder}" = {now[folder]}\n' for folder in sorted(now) if now[folder])
            for name, now in (("words", words), ("fragments", fragments))
        )
        COUNTS.write_text("# Written by tests/test_words.py. Counts only go down.\n" + "".join(lines), "utf-8")
        return
    fewer = {folder for name, now in (("words", words), ("fragments", fragments)) for folder in recorded[name]
             if now[folder] < recorded[name][folder]}  # fmt: skip
    assert fewer == set(), f"fewer than recorded: set {UPDATE}=1 to record that"
