"""The conversation with Envoy: messages, the state of one request, names and usage in its response, health."""
