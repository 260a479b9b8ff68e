"""Newton's method for any loss, one pass over the rows an iteration."""
