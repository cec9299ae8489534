"""Calls of Ascend C in the text that the preprocessor leaves: where each is, and which requests it may make.

Calls in a function that takes an event as a template argument are listed once for each mention of an event with which
it is called: `HardEvent::MTE2_S` is `HardEvent::at_MTE2_S(7)` in this text, with a number that no other mention has.
"""

import bisect
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

VECTOR = (
    "Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or", "Adds", "Muls", "Maxs", "Mins", "Abs", "Duplicate",
    "CreateVecIndex", "Cast", "ReduceSum", "ReduceMax", "ReduceMin", "Sum", "WholeReduceSum", "WholeReduceMax",
    "WholeReduceMin", "BlockReduceSum", "BlockReduceMax", "BlockReduceMin", "PairReduceSum", "CompareScalar",
    "Select", "Brcb", "Copy", "Exp", "Sort32", "Sort", "Extract",
)  # fmt: skip
"""Instructions of the vector pipe."""

REQUESTS = {
    **dict.fromkeys(VECTOR, ("v_copy",)),
    "DataCopy": ("mtu_in", "mtu_out", "mtu_add", "v_copy"), "DataCopyPad": ("mtu_in", "mtu_out", "mtu_add"),
    "GetDataPtr": ("load",), "GetValue": ("load", "ub_load"), "SetValue": ("store", "ub_store"),
    "xccl_tiling": ("load",), "xccl_assert": ("fail",),
    "element": ("load", "ub_load", "store", "ub_store"),
    "SetFlag": ("set_flag",), "WaitFlag": ("wait_flag",), "DataCacheCleanAndInvalid": ("dcci",),
    "AllocTensor": ("wait_flag",), "EnQue": ("set_flag",), "DeQue": ("wait_flag",),
    "FreeTensor": ("set_flag", "wait_flag"), "PipeBarrier": (), "SyncAll": (), "dsb": ("quiet",),
    "xccl_launches": ("arrive", "await_group", "load", "poll_ge", "quiet", "atomic_add"),
    "CrossCoreSetFlag": ("set_flag", "wait_flag", "arrive"), "CrossCoreWaitFlag": ("await_group",),
    "GatherMask": ("v_copy", "set_flag", "wait_flag", "ub_load"),
    **dict.fromkeys(("InitBuffer", "SetAtomicMax", "SetAtomicMin", "SetDeqScale"), ("fail",)),
}  # fmt: skip
"""The requests that a call of each name may make; a barrier's follow from how it is read (`sites.BARRIER`)."""

EVENTS = ("SetFlag", "WaitFlag")
FREE = ("PipeBarrier", "SyncAll", "DataCacheCleanAndInvalid", "dsb")
"""What is no method of anything: a method of that name is a user's."""

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"([ \d]*)')
_OF_SYSTEM = "3"
_NO_CODE = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.){1,4}\'|__attribute__\s*\(\([^()]*\)\)')
_NAMES = "|".join(name for name in REQUESTS if name != "element")
_CALL = re.compile(rf"(?:(\w+)\s*(?:\[[^\]]*\])?\s*(?:\.|->)\s*(?:template\s+)?)?\b({_NAMES})\s*(?=[<(])")
_OPERANDS = re.compile(r"\s*(?:<([^;{}]*?)>)?\s*\(([^;]*)")
_TENSOR = re.compile(r"\b(Local|Global)Tensor\s*<[^;()]*?>\s*&?\s*(\w+(?:\s*,\s*\w+)*)")
_SYNC = re.compile(r"\bTQueSync\s*<[^;()]*?>\s*&?\s*(\w+)")
_EVENT = re.compile(r"\bHardEvent\s+(\w+)|\b(\w+)\s*=\s*(?:\w+\s*::\s*)*HardEvent\b")
_MENTION = re.compile(r"\bHardEvent\s*::\s*(?:at_)?(\w+)(?:\s*\(\s*(\d+)\s*\))?")
_APPLIED = re.compile(r"\b(\w+)\s*<([^;{}]*?)>\s*\(")
_OF_EVENT = re.compile(
    r"template\s*<[^<>{};]*\bHardEvent\s+(\w+)[^<>{};]*>[^;{}()]*?\b(\w+)\s*\([^;{}]*\)\s*(?:const\s*)?(?=\{)"
)
_FETCHED = re.compile(r"\b(\w+)\s*=[^;{}=]*\bFetchEventID\s*\(")
_NUMBER = re.compile(r"(?:EVENT_ID)?(\d+)\s*\)")
_NO_TYPES = ("return", "else", "do", "co_return")
_CLASS = re.compile(r"(?:\w+\s*(?:<[^;{}()]*>)?)?\s*::\s*$")


@dataclass(frozen=True)
class SourceCall:
    """A call in the source."""

    file: str
    line: int
    name: str
    of: str
    """The queue or tensor whose method it is, or the event between pipes; or empty."""
    event: str = ""
    """The number of its event, or that it is fetched; empty where the source does not say it at the call."""
    where: str = ""
    """``Local`` or ``Global``, if all tensors of that name are so."""
    given: str = ""
    """Its template argument as it is written, or its only operand."""
    mention: int = -1
    """The number of the mention of its event, if it is called with one."""
    caller: tuple[str, int] = ("", 0)
    """File and line of that mention, if it is in another call: then the call has a site for each."""
    at: int = 0
    """Where it is in the text, or where its caller is."""
    blocks: tuple[int, ...] = ()
    """The braces around that place, from outside in."""
    burst: tuple[int, ...] = ()
    """The same for calls of events that follow each other with nothing in between."""

    @property
    def place(self) -> tuple[str, int]:
        """File and line by which it is called."""
        return self.caller if self.caller[0] else (self.file, self.line)

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that it may make."""
        asked = REQUESTS[self.name]
        kinds = {"Local": True, "Global": False}
        if self.name not in ("element", "GetValue", "SetValue") or self.where not in kinds:
            return asked
        return tuple(each for each in asked if each.startswith("ub_") == kinds[self.where])


def calls(text: str, *own: str) -> list[SourceCall]:
    """The calls in a preprocessed text, in order; none in files of some folders, and none in the compiler's headers."""
    return list(_Source(text, own).calls())


def _rows(text: str, own: tuple[str, ...]) -> Iterator[tuple[str, int, str]]:
    """The lines of a user's files, each with its file and number."""
    file, line, is_system = "", 0, False
    for row in text.splitlines():
        marker = _MARKER.match(row)
        if marker:
            line, file = int(marker[1]), json.loads(f'"{marker[2]}"')
            is_system = _OF_SYSTEM in marker[3].split()
            continue
        if not is_system and not file.startswith((*own, "<", "the call of")):
            yield file, line, "" if row.startswith("#") else row
        line += 1


class _Source:
    """The text of a user's files, and what is declared in it."""

    def __init__(self, text: str, own: tuple[str, ...]) -> None:
        rows = list(_rows(text, own))
        self._places = [(file, line) for file, line, _ in rows] or [("", 0)]
        self.text = _NO_CODE.sub(lambda found: " " * len(found[0]), "\n".join(row for _, _, row in rows))
        self._starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        blocks: tuple[int, ...] = ()
        self._braces, self._blocks = [-1], [blocks]
        for found in re.finditer(r"[{}]", self.text):
            blocks = (*blocks, found.start()) if found[0] == "{" else blocks[:-1]
            self._braces.append(found.start())
            self._blocks.append(blocks)

    def place(self, at: int) -> tuple[str, int]:
        """File and line."""
        return self._places[bisect.bisect_right(self._starts, at) - 1]

    def blocks(self, at: int) -> tuple[int, ...]:
        """The braces around a place, from outside in."""
        return self._blocks[bisect.bisect_right(self._braces, at) - 1]

    @cached_property
    def _tensors(self) -> Mapping[str, set[str]]:
        tensors = defaultdict[str, set[str]](set)
        for found in _TENSOR.finditer(self.text):
            for name in found[2].split(","):
                tensors[name.strip()].add(found[1])
        return tensors

    @cached_property
    def _events(self) -> set[str]:
        """Names that the source gives to events."""
        return {found[1] or found[2] for found in _EVENT.finditer(self.text)}

    @cached_property
    def _syncs(self) -> set[str]:
        return {found[1] for found in _SYNC.finditer(self.text)}

    @cached_property
    def _fetched(self) -> set[str]:
        return {found[1] for found in _FETCHED.finditer(self.text)}

    @cached_property
    def _of_user(self) -> set[str]:
        """Names of Ascend C that the source declares for functions of its own."""
        return {found[2] for found in _CALL.finditer(self.text) if not found[1] and self._is_declared(found.start(2))}

    def _is_declared(self, at: int) -> bool:
        """Return whether a function is declared where its name is."""
        before = self.text[max(at - 200, 0) : at].rstrip()
        while qualified := _CLASS.search(before):
            before = before[: qualified.start()].rstrip()
        word = re.search(r"(\w+)$", before)
        return word[1] not in _NO_TYPES if word else before.endswith(">") and not before.endswith("->")

    def _is_ours(self, found: re.Match[str]) -> bool:
        """Return whether it is a call of Ascend C's; of a name that the source declares, where the operands say so."""
        of, name = found[1], found[2]
        if not of and self._is_declared(found.start(2)):
            return False
        if name not in self._of_user:
            return True
        if name in EVENTS:
            given, _ = self._operands(found)
            return of in self._syncs or "HardEvent" in given or bool(self._events & {*re.findall(r"\w+", given)})
        return not of or name not in FREE

    def calls(self) -> Iterator[SourceCall]:
        """The calls in order; what a function that takes an event calls is listed once for each mention of one."""
        element = re.compile(rf"\b({'|'.join(sorted(self._tensors)) or '(?!)'})\s*\(")
        found = [self._call(each) for each in _CALL.finditer(self.text) if self._is_ours(each)]
        found += [self._element(each) for each in element.finditer(self.text)]
        found = self._in_bursts(sorted(found, key=lambda call: call.at))
        mentions = list(self._mentions())
        for call in found:
            of = next((name for at, (name, event) in self._taking.items() if self._is_in(call, event, at)), "")
            called = [each for each in mentions if of and of in each[3]]
            yield from [self._called(call, *each) for each in called] or [call]

    def _is_in(self, call: SourceCall, event: str, at: int) -> bool:
        return call.name in EVENTS and call.of == event and at in call.blocks

    def _operands(self, call: re.Match[str]) -> tuple[str, str]:
        """The template argument, and the text from the first operand on."""
        found = _OPERANDS.match(self.text, call.end())
        return ((found[1] or "").strip(), found[2]) if found else ("", "")

    def _where(self, name: str) -> str:
        of = self._tensors.get(name, set())
        return min(of) if len(of) == 1 else ""

    def _element(self, found: re.Match[str]) -> SourceCall:
        at = found.start()
        return SourceCall(*self.place(at), "element", found[1], "", self._where(found[1]), at=at)

    def _call(self, found: re.Match[str]) -> SourceCall:
        at, of, name = found.start(2), found[1] or "", found[2]
        given, rest = self._operands(found)
        call = SourceCall(
            *self.place(at), name, of, "", self._where(of), given or rest.partition(")")[0].strip(), at=at,
            blocks=self.blocks(at),
        )  # fmt: skip
        if name not in EVENTS:
            return call
        mention = _MENTION.search(given)
        pipes = mention[1] if mention else given.rpartition("::")[2].strip() or of
        number = int(mention[2]) if mention and mention[2] else -1
        return replace(call, of=pipes, event=self._number(rest), mention=number)

    def _number(self, operand: str) -> str:
        """The number of an event by what is in brackets, `fetched`, or nothing."""
        if number := _NUMBER.match(operand.strip()):
            return number[1]
        word = re.match(r"\s*(\w+)\s*\)", operand)
        return "fetched" if "FetchEventID" in operand or (word and word[1] in self._fetched) else ""

    def _in_bursts(self, found: list[SourceCall]) -> list[SourceCall]:
        """The calls; each of an event has the place of the first call of events that it follows without a gap."""
        burst, end = 0, -1
        for i, call in enumerate(found):
            if call.name in EVENTS:
                between = self.text[end : call.at] if end >= 0 else "begin"
                burst = burst if re.fullmatch(r"\s*(?:(?:AscendC\s*)?::\s*)?", between) else call.at
                end = self.text.find(";", call.at) + 1
                found[i] = replace(call, burst=(burst,))
        return found

    @cached_property
    def _taking(self) -> Mapping[int, tuple[str, str]]:
        """Functions that take an event as a template argument, and its name in them, by where their braces begin."""
        return {found.end(): (found[2], found[1]) for found in _OF_EVENT.finditer(self.text) if found[2] not in EVENTS}

    def _mentions(self) -> Iterator[tuple[int, str, int, set[str]]]:
        """Each mention of an event: its place, pipes and number, and the functions that may take it."""
        applied = list(_APPLIED.finditer(self.text))
        inner = {name: {name} for name, _ in self._taking.values()}
        for _ in self._taking:
            for found in applied:
                around = self.blocks(found.start())
                for at, (name, event) in self._taking.items():
                    if at in around and found[1] in inner and event in re.findall(r"\w+", found[2]):
                        inner[name] |= inner[found[1]]
        of = {at: found[1] for found in applied for at in range(found.start(2), found.end(2))}
        for found in _MENTION.finditer(self.text):
            fetched = re.search(r"\bFetchEventID\s*\(\s*(?:\w+\s*::\s*)*$", self.text[: found.start()][-80:])
            applied_to = of.get(found.start(), "")
            if found[2] and not fetched and applied_to not in EVENTS:
                yield found.start(), found[1], int(found[2]), inner.get(applied_to, {*inner})

    def _called(self, call: SourceCall, at: int, pipes: str, number: int, _: set[str]) -> SourceCall:
        return replace(
            call, of=pipes, mention=number, caller=self.place(at), at=at, blocks=self.blocks(at),
            burst=(*call.burst, number),
        )  # fmt: skip
