"""How things look: themes, signs, units, colours and small plots. Nothing here knows what a run is."""
