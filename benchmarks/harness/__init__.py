"""Measures parsimax beside PyTorch, memcpy and the entmax package, in one process."""
