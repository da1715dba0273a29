"""vLLM's gRPC API, with reflection, on our own wire."""
