"""Who the endpoints are: one module per place that can tell."""
