"""The Textual app: views of the engine's model, and the commands that act on it."""
