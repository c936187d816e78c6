"""The model repository: versions, configurations, what is in them."""
