"""The fair ridge in closed form: systems, paths, limits, cross-validation, wide maps."""
