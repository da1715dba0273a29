"""From those objects to a Helm chart for any namespace."""
