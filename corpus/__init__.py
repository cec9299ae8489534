"""Bugs that were found in the wild, each as a pair of cases: a folder NAME with NAME.py and README.md."""
