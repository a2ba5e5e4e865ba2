"""Real training of four ranks, one of them slow or none: does a watching cockpit name it, and nobody else?"""

RANKS = 4
