"""A kernel on the predictions: the dependence of all of their distribution."""
