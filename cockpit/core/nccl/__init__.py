"""What NCCL and RCCL say of themselves (``NCCL_DEBUG=INFO``), as a table of ranks; what is wrong by it.

Pure: lines come in. Files and nodes are read in ``engine.nccl``; what errors mean is in
``core.doctor.nccl_words``.
"""
