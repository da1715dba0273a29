"""What a request's body says: model, prompt, media; read once, and only as far as somebody needs it."""
