"""`python -m text_pipeline` is the command `text-pipeline`."""

from text_pipeline.cli import main

main()
