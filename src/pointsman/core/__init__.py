"""What every other package stands on: errors, durations, logs, documents, TLS, the names of Kubernetes objects.

Knows no requests and speaks to no cluster.
"""
