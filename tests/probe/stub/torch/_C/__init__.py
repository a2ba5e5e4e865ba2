"""The native part."""
