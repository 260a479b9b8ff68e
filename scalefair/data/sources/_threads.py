"""Old address of `threads`, until the estimators that are being rewritten have landed."""

from scalefair.data.sources.threads import available_threads, one_blas_thread
from scalefair.data.sources.threads import run_threads as run_lanes

__all__ = ["available_threads", "one_blas_thread", "run_lanes"]
