"""The exceptions of fyke. Their messages are complete: texts have their line and a caret under the position."""

from __future__ import annotations


class Error(Exception):
    """All exceptions of fyke, but for wrong values of arguments (ValueError, TypeError)."""


class FilterError(Error, ValueError):
    """A text is not a filter, or a change of filters is refused; nothing has changed then."""

    def __init__(self, message: str, span: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.span = span
        """Start and end of the wrong part of the text, in bytes, if it is known."""


class GraphError(Error, ValueError):
    """A text is not a graph, or a change of a graph is refused; nothing has changed then."""


class CaptureError(Error, OSError):
    """A file, an interface, a service or another process cannot be opened, or not be read further."""


class EndedError(Error):
    """The capture, the graph or the process that is asked has ended."""
