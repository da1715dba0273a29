"""Deciding: the director of one request, the scheduler of one configuration, profiles, and why it was so."""
