"""What every optimizer imports."""
