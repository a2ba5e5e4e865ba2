"""Rules of the verdict, by what they look at; their order is in :mod:`cockpit.core.stacks.verdict`."""
