"""Ends of several ranks, in every order and delay: who raised, waited, died silently; who is named?"""
