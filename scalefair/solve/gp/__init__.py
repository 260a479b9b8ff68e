"""Fair Gaussian processes of explicit features: evidence, its gradient, search, posterior."""
