"""The equations of [MixServe] III as printed, and as this project corrects them: each difference is a switch."""

from dataclasses import dataclass, fields

from xccl_emu.base.errors import ConfigError


@dataclass(frozen=True)
class Form:
    """Which equations are taken as they are printed; all others are corrected.

    Fields are named by the number of the equation; docs/records/mixserve.md has what is printed, what is wrong with
    it, and its correction.
    """

    eq1: bool = False
    """One round whatever the link (Table I), where a single port sends degree − 1 shares one after the other."""
    eq2: bool = False
    """All-reduce divides by the degree, and so do its two halves; so does the all-gather of (13)."""
    eq4: bool = False
    """All weights compute for every token, of all blocks by the experts' degrees; reading weights takes no time."""
    eq7: bool = False
    """Tokens a second arrive at a server that makes one token in an iteration of the whole batch."""
    eq8: bool = False
    """The cache has the hidden state twice a token, of the whole batch on each device; weights are not split by PP."""
    eq11: bool = False
    """Throughput counts one request, its wait included, whatever the batch."""
    eq13: bool = False
    """One all-reduce a layer for both blocks, d_TP of the experts for what both do, A2A shared by those alone."""

    @property
    def text(self) -> str:
        """Such as ``literal``, ``corrected`` or ``literal but for (8)``."""
        kept = [each.name for each in fields(self) if getattr(self, each.name)]
        others = [f"({each.name[2:]})" for each in fields(self) if each.name not in kept]
        if not kept:
            return "corrected"
        return f"literal but for {', '.join(others)}" if others else "literal"


CORRECTED = Form()
LITERAL = Form(**{each.name: True for each in fields(Form)})


def literal_but_for(corrected: tuple[str, ...]) -> Form:
    """The literal form with some equations corrected, by their numbers; ConfigError for another number."""
    known = [each.name for each in fields(Form)]
    for one in corrected:
        if f"eq{one}" not in known:
            raise ConfigError("correct", one, f"must be one of {', '.join(name[2:] for name in known)}")
    return Form(**{name: name[2:] not in corrected for name in known})
