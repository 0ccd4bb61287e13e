"""pymongo's own test suite, run twice: directly at a mongod, and through docward before one.

`make compat` runs all of it (`__main__`), test_pymongo_core.py the part of CORE. `suite` runs
it and collects results, `compare` reports what differs, `explained` what may differ and why.
"""

# The operations that most applications use, in parts of similar duration. `make compat` runs the rest of the suite.
CORE = {
    "crud": [
        "test/test_crud_unified.py",
        "test/test_cursor.py",
        "test/test_session.py",
        "test/test_sessions_unified.py",
    ],
    "writes": [
        "test/test_bulk.py",
        "test/test_retryable_writes.py",
        "test/test_retryable_writes_unified.py",
        "test/test_transactions.py",
        "test/test_transactions_unified.py",
    ],
    "reads": [
        "test/test_change_stream.py",
        "test/test_collection.py",
        "test/test_compression_support.py",
        "test/test_gridfs.py",
        "test/test_gridfs_bucket.py",
        "test/test_retryable_reads.py",
        "test/test_retryable_reads_unified.py",
    ],
}

# Tests of CORE that wait for ten seconds and more, most of them for a server that is not there.
SLOW = [
    "test/test_retryable_reads.py::TestRetryableReads::test_backoff_is_not_applied_for_non_overload_errors",
    "test/test_retryable_reads.py::TestRetryableReads::test_overload_then_nonoverload_retries_increased_reads",
    "test/test_retryable_writes.py::TestErrorPropagationAfterEncounteringMultipleErrors",
    "test/test_transactions_unified.py::TestUnifiedReadPref::test_secondary_readPreference",
    "test/test_transactions_unified.py::TestUnifiedRunCommand::test_run_command_fails_with_explicit_secondary_read_preference",
    "test/test_transactions_unified.py::TestUnifiedRunCommand::test_run_command_fails_with_secondary_read_preference_from_transaction_options",
]

# What is run once more by a driver that compresses.
COMPRESSED = ["test/test_bulk.py", "test/test_cursor.py", "test/test_gridfs_bucket.py"]
