"""Device code of witnesses."""
