"""Who goes next: one policy a file, all with one interface.

A policy is ``policy(mem, st, log, budget)``: it takes actions until the run is over or ``budget`` of them are
taken, appends each to ``log`` if that has room for any (``actor << CHOICE_BITS | choice``), and returns how it ended
(`ENDED_*`).  Called again, it goes on where it was.
"""
