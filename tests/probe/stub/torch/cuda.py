"""What there is without a GPU."""


def is_available() -> bool:
    """Never."""
    return False
