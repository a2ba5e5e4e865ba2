"""The doctor: what the conditions of the nodes show, where they differ and what is wrong with one of them.

Pure: what was asked of the nodes comes in as looks. Asking is in ``engine.doctor``.
"""
