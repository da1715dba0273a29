"""What is counted and measured of requests, endpoints and plugins, under llm-d's names and ours; traces."""
