"""Two runs side by side on the screen: their curves over each other, and what differs."""
