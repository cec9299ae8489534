"""The command ``python -m xccl_emu.doors.torch``."""

import sys

from xccl_emu.doors.torch.launch import main

if __name__ == "__main__":
    sys.exit(main())
