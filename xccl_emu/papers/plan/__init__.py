"""Which parallel strategy serves a model on a cluster best: the analyzer of [MixServe], III-B and III-C."""
