"""Performance claims: ratios measured in one run against a baseline, never timed tests."""
