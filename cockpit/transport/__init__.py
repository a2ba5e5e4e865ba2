"""Ways to start a command on a host and have its stdin and stdout, nothing else: ssh, this machine.

What is said over that pipe is in ``engine.links``.
"""
