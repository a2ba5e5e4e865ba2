"""The rows of the table of rules, by area: data only. What says more stands first."""
