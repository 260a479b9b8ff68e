"""Names that estimators still import from here; they live in `_hash`."""

from scalefair._hash import attributes, digest

__all__ = ["attributes", "digest"]
