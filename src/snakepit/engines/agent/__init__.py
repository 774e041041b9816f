"""The supervisor of a node: one standard-library program, Python 3.6 or newer, that runs on when the head is gone.

It is packed as a zipapp (`engines/package.py`) and started detached. `server` listens, `supervisor` decides and does,
`holder` keeps each process, `records` remembers, `logs` tails. Of the other rooms it imports `core.confine` alone,
of which the package carries a copy.
"""
