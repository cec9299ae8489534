"""Going on with fewer ranks: host code."""
