"""A peer that rewrites what a node sends, and campaigns that look for anything but an error."""
