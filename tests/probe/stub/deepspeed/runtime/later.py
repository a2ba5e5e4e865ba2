"""Something that is imported after the engine."""
