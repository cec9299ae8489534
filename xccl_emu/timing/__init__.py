"""Time: how long the same kernels would take on a pod, by a model of its fabric and engines.

Virtual time is one more policy: the machine does what it always does, and every action also has a beginning and an end.
"""
