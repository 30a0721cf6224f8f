"""Compiled kernels for Pellucid; `pellucid.native` knows how to call them, and what to do without them."""
