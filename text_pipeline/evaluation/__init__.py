"""`text-pipeline evaluate`: how right the answers of a running server are."""
