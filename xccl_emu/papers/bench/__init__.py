"""The published measurements, made again on the emulated pod: what was published, what comes out, and the error."""
