"""The command ``python -m xccl_emu.torch``."""

import sys

from xccl_emu.torch.launch import main

if __name__ == "__main__":
    sys.exit(main())
