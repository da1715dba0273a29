"""One simulated Pod: its engine, its metrics, its KV cache events."""
