"""``python -m xccl_emu`` is the command ``xccl-emu``."""

from xccl_emu.cli.main import main

if __name__ == "__main__":
    main()
