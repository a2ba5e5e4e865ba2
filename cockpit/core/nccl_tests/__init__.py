"""Tables that the programs of nccl-tests print (``all_reduce_perf`` and others), compared and drawn.

Pure: lines come in. Logs and earlier results are read in ``engine.nccl`` and ``engine.nccl_results``.
"""
