"""The command line: ``gckm``, or ``python -m torch_gckm``."""

from torch_gckm.cli.run import main

__all__ = ["main"]
