"""Continuous batching in steps, as vLLM V1 does it: no clock, no I/O, so a server or virtual time can drive it."""
