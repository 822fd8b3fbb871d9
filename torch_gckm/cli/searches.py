"""Options of the commands that search for settings."""

import argparse
from pathlib import Path
from typing import Any

from torch_gckm.select.studies import journal_path


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
