"""Old address of `base`, until the estimators that are being rewritten have landed."""

from scalefair.data.sources.base import PARTS, ChunkSource, cut_chunk

__all__ = ["PARTS", "ChunkSource", "cut_chunk"]
