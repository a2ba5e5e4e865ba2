"""What is sent to a node: agent, supervisor, wrapper. Standard library only, from Python 3.8 on."""
