"""Envoy's configuration for a gateway in front of model servers: plain documents, and nothing of Kubernetes."""
