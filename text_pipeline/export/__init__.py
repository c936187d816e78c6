"""From a Hugging Face directory to a version in the model repository."""

import sys

from text_pipeline.errors import TextPipelineError

if sys.flags.optimize > 1:
    # It makes docstrings out of docstrings while it is imported.
    raise TextPipelineError(
        "transformers needs its docstrings: run Python without -OO (PYTHONOPTIMIZE=2); -O is fine"
    )
