"""One command where a GPU is: what the manual says of GPUs, measured, and a report of it.

`claims` says what is to be shown and `plan` which steps show it on this machine; `runner` runs each
in a process of its own (`graph_steps`, `served_steps`), and `report` writes what came of it.
"""
