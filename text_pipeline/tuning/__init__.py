"""Finds, by measurement, the configuration with the most throughput within a latency target."""
