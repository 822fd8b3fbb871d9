"""Runs a command of ``gckm``, and imports what it needs only when its arguments are right."""

import argparse
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from torch_gckm.cli.parser import command_parser
from torch_gckm.errors import GCKMError, GCKMWarning
from torch_gckm.progress import Bar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns 0, or 2 after a mistake of the user, which one line on the standard error describes."""
    args = command_parser().parse_args(arguments)
    args.command = shlex.join(["gckm", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", GCKMWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"gckm: {message}", file=sys.stderr)
            _load(args).COMMANDS[args.run](args)
    except BrokenPipeError:  # Whoever reads the output, such as head, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (GCKMError, OSError, ImportError) as error:
        print(f"gckm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gckm: interrupted", file=sys.stderr)
        return 130
    return 0


def _load(args: argparse.Namespace) -> Any:
    """The module of the commands, which takes some seconds to import."""
    is_shown = not args.quiet if "quiet" in args else sys.stderr.isatty()
    with Bar("loading PyTorch", shown=is_shown and "torch" not in sys.modules):
        return importlib.import_module("torch_gckm.cli.commands")
