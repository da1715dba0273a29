"""The live page: what the picker does, and why, while it does it. Pure rows and deltas; one shell that streams them."""
