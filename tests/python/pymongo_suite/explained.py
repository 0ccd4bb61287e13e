"""Tests that may end otherwise through docward than directly, each with the reason.

Only what docward cannot do otherwise belongs here; everything else is a bug of docward. `make compat`
believes a reason only as long as the test passes through a docward without a worker.
A key is the id of a test, or the beginning of ids and a star.
"""

OTHER_CHANGES = (
    "docward's worker, which keeps the copies of `copies` rules, renews its leases in the database `docward`; "
    "a change stream of the whole cluster shows that, as it shows what any other client does"
)
OTHER_COMMANDS = (
    "docward's worker, which keeps the copies of `copies` rules, is one more client of the server, and its commands "
    "use up failpoints that the test has for itself"
)

EXPLAINED = {
    "test/test_change_stream.py::TestClusterChangeStream::test_aggregate_cursor_blocks": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_next_blocks": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_try_next_runs_one_getmore": OTHER_CHANGES,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_find": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_getMore": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_update_many": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestClientBackpressureGetMoreRetried::test_getMores_are_retried": OTHER_COMMANDS,
}
