"""What NCCL and RCCL say of themselves (``NCCL_DEBUG=INFO``): read into a table, rank by rank.

No I/O.
"""
