"""Words of every object."""

from typing import Annotated, TypedDict


class Envelope(TypedDict):
    """Words of every object."""

    schema: Annotated[str, "`xccl-emu/1`, this page"]
    command: Annotated[str, "the command that printed it"]
    version: Annotated[str, "version of xccl_emu"]
