"""Run `scalefair paper` with the folder of kept results.

    python -m benchmarks.paper toy2 [--seeds 0:10]

The experiments are in scalefair/paper, so that an installed package has them, too.
"""

from __future__ import annotations

import sys

from benchmarks._measure import RESULTS
from scalefair.cli import main

if __name__ == "__main__":
    main(["paper", *sys.argv[1:], "--out", str(RESULTS / "paper")])
