"""Events, the run model and its reducer, folding and sanitising of remote text: no I/O."""
