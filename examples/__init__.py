"""Small kernels to start from."""
