"""Solvers: free functions of moments or Gram matrices, headed by their formulas."""
