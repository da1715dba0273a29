"""Pointsman: the llm-d inference-scheduling system in Python."""
