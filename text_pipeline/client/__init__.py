"""Asks a running server: connection, requests, failures, model control from outside."""
