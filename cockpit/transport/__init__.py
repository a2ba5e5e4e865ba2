"""A transport starts a command on a host and gives its stdin and stdout, nothing else."""
