"""Tests that may end otherwise through docward than directly, each with the reason.

Only what docward cannot do otherwise belongs here; everything else is a bug of docward.
A key is the id of a test, or the beginning of ids and a star.
"""

EXPLAINED = {}
