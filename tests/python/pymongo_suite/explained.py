"""Tests that may end otherwise through docward than directly, each with the reason.

Only what docward cannot do otherwise belongs here; everything else is a bug of docward. `make compat`
believes what is said of the worker only as long as the test passes through a docward without one.
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

BY_CERTIFICATE = (
    "the test logs in by MONGODB-X509 through a failpoint of the server; docward refuses such logins itself, because "
    "the certificate is the TLS session's, which ends at docward"
)

# What docward does on purpose, with or without a worker.
ON_PURPOSE = {
    "test/test_command_logging.py::TestCommandLoggingRedactedCommands::"
    "test_network_error_in_response_to_authenticate_is_not_redacted": BY_CERTIFICATE,
    "test/test_command_logging.py::TestCommandLoggingRedactedCommands::"
    "test_network_error_in_response_to_saslStart_is_not_redacted": BY_CERTIFICATE,
}

# What the worker makes different.
BY_WORKER = {
    "test/test_change_stream.py::TestClusterChangeStream::test_aggregate_cursor_blocks": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_next_blocks": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_try_next_runs_one_getmore": OTHER_CHANGES,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_find": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_getMore": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_update_many": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestClientBackpressureGetMoreRetried::test_getMores_are_retried": OTHER_COMMANDS,
}
