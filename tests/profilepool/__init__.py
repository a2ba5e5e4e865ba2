"""The pool of reasons, profiled: does a profile say the same as the steps of a run, and name nobody else?"""
