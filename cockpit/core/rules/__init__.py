"""What failures mean: rules as data, one table, and which of them explains an end."""
