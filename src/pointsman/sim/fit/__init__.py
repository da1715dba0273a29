"""Latency models from recordings of a real engine, and how well they meet what they have not seen."""
