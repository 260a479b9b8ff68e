"""The paper's experiments, kept: ``python -m benchmarks.paper NAME`` fills results/paper."""
