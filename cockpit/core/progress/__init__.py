"""Numbers of training, read from the lines that programs print."""
