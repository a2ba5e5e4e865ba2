"""Numbers of training, read out of the lines that programs print."""
