"""Sequences of calls, drawn by Hypothesis' stateful testing and judged on sampled schedules, small ones on all."""
