"""The operators of pplx-kernels."""


def install() -> None:
    """Put the operators into PyTorch."""
