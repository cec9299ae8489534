"""``xccl-emu corpus``: bugs that were found in the wild, each found here, and proved to be mended."""

from dataclasses import dataclass

from xccl_emu.cli.app import App
from xccl_emu.cli.options import JSON, command_of, words
from xccl_emu.options import option


@dataclass(frozen=True)
class CorpusOptions:
    """Check that each known bug is found and its fix proved: all members of the corpus, or named ones.

    A member is a bug of a published library, written again as a broken and a mended case. Each is looked at by the
    command that finds it; the broken one must be refuted as its page says, the mended one verified.

    \b
      xccl-emu corpus
      xccl-emu corpus credit_in_flight --json
      xccl-emu check credit_in_flight:Broken

    Exit code: 0 if all are as their pages say, 1 if one is not.
    """

    seconds: float = option(60.0, "Most seconds of each case.")


_MEMBERS = words("members", "MEMBER", "Names of folders [default: all].")
app = App.of(command_of(CorpusOptions, "xccl_emu.cli.corpus_job", JSON, first=(_MEMBERS,)))
