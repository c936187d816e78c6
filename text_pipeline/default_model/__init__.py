"""The default model: MiniLM-L6 as a news classifier, an ordinary Hugging Face directory."""
