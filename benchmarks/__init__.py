"""Benchmarks: how fast this package answers, next to the published one. Start with `python -m benchmarks.engine --help`."""
