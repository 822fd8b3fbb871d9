"""One page about a fit (extra ``plot``)."""

from torch_gckm.report.report import write_report

__all__ = ["write_report"]
