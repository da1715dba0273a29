"""The Kubernetes objects that a resource asks for, and what an administrator allows."""
