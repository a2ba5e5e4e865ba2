"""How far a rank's training is: the ring that its probe writes its steps to.

The writer is in ``node.probe``, what reads it on a node in ``node.measure``.
"""
