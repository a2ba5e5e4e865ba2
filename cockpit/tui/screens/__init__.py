"""Screens: each owns one flow."""
