"""The command line: one module per verb, imported lazily."""
