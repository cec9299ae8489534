"""``xccl-emu new``: a protocol of one's own to begin with."""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.cli.app import App
from xccl_emu.cli.options import command_of
from xccl_emu.options import option


@dataclass(frozen=True)
class NewOptions:
    """Write a small protocol to begin with: NAME_kernel.py, NAME.py with the case, and test_NAME.py.

    It sends a chunk to the next die. Check it, run the tests, and then change it to what you have in mind. Or copy one
    of the examples, as it is.

    \b
      xccl-emu new my_gather
      xccl-emu check my_gather.py:MyGather --each-sync
      pytest test_my_gather.py
      xccl-emu new --example prefix_sum

    Exit code: 0, 2 wrong usage, or a file that is there.
    """

    name: str = option("", "Of the kernel and its files; lower case with underscores.", argument=True, metavar="NAME")
    example: str = option("", "Copy this example in place of it; any other word lists them.")
    folder: Path = option(Path("."), "Where to write; made if it is not there.")


app = App.of(command_of(NewOptions, "xccl_emu.cli.new_job"), no_args_is_help=True)
