"""Starts, watches and stops a tritonserver."""
