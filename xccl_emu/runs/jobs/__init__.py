"""What the runs do: on the pod, and held against the oracle."""
