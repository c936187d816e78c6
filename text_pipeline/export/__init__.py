"""From a Hugging Face directory to a version in the model repository."""
