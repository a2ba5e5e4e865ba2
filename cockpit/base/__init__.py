"""Code that runs on both sides of a link: standard library only, Python 3.8 and newer, no I/O."""
