"""The smallest kernel: write a field on another die, and do not return before it is visible."""

from xccl_emu.lang import kernel, put, quiet


@kernel
def ping(box, value):
    """Write ``value`` to the 32-byte field at ``box``."""
    yield put(box, value)
    yield quiet(sync="visible")
