"""The HTTP API: OpenAI's, Anthropic's, vLLM's own, and the controls of the simulator."""
