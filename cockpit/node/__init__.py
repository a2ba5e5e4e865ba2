"""What is sent to a node: agent, supervisor, wrapper. Standard library and psutil, from Python 3.8 on."""
