"""Flag words of ranks that hang: how a dump of them is laid out, and who waits for whom by it."""
