"""The widgets: each draws one thing the user sees, and asks for what it cannot do itself by a message."""
