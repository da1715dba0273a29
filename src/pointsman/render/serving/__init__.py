"""From an LLMInferenceService to objects: presets, merge, and what each part of it becomes. Pure."""
