"""Recorders on a node: asking torch's server in each rank for its flight recorder, and NCCL's RAS for a job.

How a flight recorder's answer is read and cut down is in ``base.recorder``, how RAS's is in ``ras_reading``
and ``ras_text``.
"""
