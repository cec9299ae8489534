"""``python -m xccl_emu`` is the command ``xccl-emu``."""

from xccl_emu.cli.ending import run_to_end


def _command() -> None:
    from xccl_emu.cli.main import command  # takes its time, in which Ctrl-C is heard already

    command()


def main() -> None:
    """Entry point of the command; leaves through `SystemExit`."""
    run_to_end(_command)


if __name__ == "__main__":
    main()
