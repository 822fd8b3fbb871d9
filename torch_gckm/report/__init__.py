"""One page about a fit (extra ``report``)."""

from torch_gckm.report.drawing import require_bokeh
from torch_gckm.report.report import write_report

__all__ = ["require_bokeh", "write_report"]
