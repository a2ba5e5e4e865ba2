"""What a console tells of a failure: who printed what, who broke first and why, without a record of the run."""
