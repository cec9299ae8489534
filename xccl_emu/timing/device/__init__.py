"""Device code of virtual time: a policy whose actions take time."""
