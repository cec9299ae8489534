"""Tests of campaigns: random programs on which all judges must agree."""
