"""Some schedules of a trial: drawn by a policy, or replayed, each run under the monitor."""
