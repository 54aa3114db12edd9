"""Packet filters that change while they run, and frames as Arrow batches.

    import fyke, pyarrow

    for batch in fyke.capture("trace.pcap", "udp port 53"):
        print(pyarrow.record_batch(batch))
"""

from ._errors import CaptureError, EndedError, Error, FilterError, GraphError
from ._fyke import (
    Batch,
    Capture,
    Filter,
    Graph,
    LiveFilter,
    __version__,
    capture,
    explain,
    running,
)
from ._types import Change, NodeStats, Running, Stats

__all__ = [
    "Batch",
    "Capture",
    "CaptureError",
    "Change",
    "EndedError",
    "Error",
    "Filter",
    "FilterError",
    "Graph",
    "GraphError",
    "LiveFilter",
    "NodeStats",
    "Running",
    "Stats",
    "__version__",
    "capture",
    "explain",
    "running",
]
