"""A real Triton server from the `nvidia-pytriton` wheel, for machines without Docker."""
