"""Where rows come from. Knows no mathematics."""

from scalefair.stream.arrays import ArraySource

__all__ = ["ArraySource"]
