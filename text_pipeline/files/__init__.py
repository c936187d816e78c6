"""Texts in and answers out: lines, JSON lines, NumPy, Markdown."""
