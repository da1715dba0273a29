"""From a bundle to the objects that OLMv1 would make of it. Pure."""
