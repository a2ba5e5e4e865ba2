"""Real training with a rank that is slow in one phase of its steps: is the reason said, and is it right?"""
