"""`python -m pipelines` is the `laya` command."""

from pipelines.cli import main

main()
