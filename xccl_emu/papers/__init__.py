"""What makes published numbers again: measurements and how they are made, the fit, the analyzer of MixServe."""
