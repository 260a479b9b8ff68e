"""Old address of `dask_tasks`, until the estimators that are being rewritten have landed."""

from scalefair.data.sources.dask_tasks import without_columns

__all__ = ["without_columns"]
