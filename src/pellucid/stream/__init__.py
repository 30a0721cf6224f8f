"""One engine's journal, told live to whoever connects: a picture first, then what changes."""
