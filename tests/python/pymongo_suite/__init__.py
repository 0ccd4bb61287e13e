"""pymongo's own test suite, run twice: directly at a mongod, and through docward before one.

`make compat` runs all of it (`__main__`), test_pymongo_core.py the part of CORE. `suite` runs
it and collects results, `compare` says what differs, `explained` what may differ and why.
"""

# What most applications live from; the rest of the suite takes `make compat`.
CORE = [
    "test/test_bulk.py",
    "test/test_change_stream.py",
    "test/test_collection.py",
    "test/test_compression_support.py",
    "test/test_crud_unified.py",
    "test/test_cursor.py",
    "test/test_gridfs.py",
    "test/test_gridfs_bucket.py",
    "test/test_retryable_reads.py",
    "test/test_retryable_reads_unified.py",
    "test/test_retryable_writes.py",
    "test/test_retryable_writes_unified.py",
    "test/test_session.py",
    "test/test_sessions_unified.py",
    "test/test_transactions.py",
    "test/test_transactions_unified.py",
]
