"""What every other package stands on: errors, durations, logs, documents, TLS. Knows no requests and no clusters."""
