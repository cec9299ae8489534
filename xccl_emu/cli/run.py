"""``xccl-emu run``: one protocol, run on the whole pod and held against its oracle."""

import typer

app = typer.Typer(help="Run a protocol and hold its result against the oracle.", no_args_is_help=True)
