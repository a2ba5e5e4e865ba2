"""How fast cockpit is against what people use today: ``make bench``; the figures are in RESULTS.md."""
