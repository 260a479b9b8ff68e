"""Files of every schema so far, which later versions must read. `write.py` made them."""
