"""Real runs of four ranks with a fault, slow or healthy: does cockpit name whom the others wait for?"""

RANKS = 4
