"""Profiles of this node's ranks: ordered from their hooks, or taken by py-spy; and summed up here."""
