"""Who the endpoints are, what we know of them, and what we have sent them."""
