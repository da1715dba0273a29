"""What every other package stands on: errors, durations, logs, documents, TLS. Knows nothing of requests or clusters."""
