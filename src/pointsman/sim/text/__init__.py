"""What is said: tokens, prompts, answers, tool calls; how prompts become blocks."""
