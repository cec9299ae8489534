"""The monitor: what it keeps of a sampled run, and how it judges each action.  Who runs under it: `sampling`."""
