"""Who goes next in a sampled run.

Every policy chooses among the same candidates: each pipe of each core that may have something to do, and each write in
flight.  A candidate has a key; how keys are drawn and which candidate is taken is the policy (`pick`).
"""
