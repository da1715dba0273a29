"""What is decided about: the request as policies see it, refusals, and the objectives and rewrites that apply to it."""
