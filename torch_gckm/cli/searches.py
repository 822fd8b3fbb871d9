"""Options of the commands that search for settings."""

import argparse
from pathlib import Path
from typing import Any

from torch_gckm.select.studies import journal_path

BUDGET = 10.0


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how long to search, and where to keep what was tried."""
    group = parser.add_argument_group("the search")
    group.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help=f"{BUDGET:g}; 0: no limit")
    group.add_argument("--max-settings", type=int, metavar="N", help="the number of settings to try (default: 48)")
    group.add_argument("--checkpoint", type=Path, metavar="FILE", help="keep what was tried; go on if it is there")
    group.add_argument(
        "--storage", metavar="FILE_OR_URL", help="share the search with all who name the same journal or database"
    )
    group.add_argument("--study", default="gckm", metavar="NAME", help="the search in the storage (default: gckm)")
    group.add_argument("--quiet", action="store_true", help="no progress bar")


def search_options(args: argparse.Namespace) -> dict[str, Any]:
    """What searches and estimators are told about the search."""
    return {
        "budget": args.budget or None,
        "max_settings": args.max_settings,
        "progress": not args.quiet,
        "checkpoint": args.checkpoint,
        "storage": args.storage,
        "study": args.study,
    }


def search_files(args: argparse.Namespace) -> tuple[Path | None, ...]:
    """The files that a search writes to."""
    return args.checkpoint, journal_path(args.storage)
