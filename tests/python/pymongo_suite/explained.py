"""Tests that may end otherwise through docward than directly, each with the reason.

Only what docward cannot do otherwise belongs here; everything else is a bug of docward. `make compat`
believes what is stated of the worker only as long as the test passes through a docward without one.
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
OWN_HELLOS = (
    "with a pool, docward answers hellos itself from the replies to its own; the test makes the hellos of its client fail "
    "or wait by a failpoint of the server, which they do not reach"
)
NO_LOGIN = (
    "with a pool, docward itself answers a saslContinue without a login, with the server's code; the test's failpoint is "
    "for one that the server gets"
)
LEFT_BEHIND = (
    "with a pool of two, one connection is for requests that continue nothing; it is in use until the server ends the "
    "operation that the client gave up, which this failpoint delays, and the client's next request waits too long for it"
)

BY_CERTIFICATE = (
    "the test logs in by MONGODB-X509 through a failpoint of the server; docward refuses such logins itself, because "
    "the certificate is the TLS session's, which ends at docward"
)

HIDDEN = (
    "the test makes the server lose requests; a router sends them again as often as it may, which is more often than drivers "
    "do, else replies with code 6, and never closes the client's connection"
)
NO_SHARDS = "a router looks like a mongos, and a replica set has no shards: mongod does not know the command"
ONE_MONGOS = "with `useMultipleMongoses` the test expects the events of two mongos; the suite finds others by the next port"
IS_BOTH = "a router accepts clients with `loadBalanced=true` beside others, as no mongos does"
ANY_COMMITS = "a router sends no recoveryToken, because any docward can commit a transaction that another one began"
NO_EXHAUST = "PyMongo refuses exhaust cursors for a mongos of this wire version; the test is for load balancers"
NOT_BY_PYMONGO = "PyMongo repeats no getMore on the connection that a cursor keeps with `loadBalanced=true`"

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
    "test/test_change_stream.py::TestClusterChangeStream::test_change_operations": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_iteration": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_next_blocks": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_try_next*": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_batch_size_is_honored": OTHER_CHANGES,
    "test/test_change_stream.py::TestClusterChangeStream::test_simple": OTHER_CHANGES,
    "test/test_client_backpressure.py::TestBackpressure::test_retry_overload_error_*": OTHER_COMMANDS,
    "test/test_client_backpressure.py::TestClientBackpressureGetMoreRetried::test_getMores_are_retried": OTHER_COMMANDS,
    # The workers of two docwards send twice as many.
    "test/test_client_backpressure.py::TestClientBackpressureBackpressureRetryLoop::test_collection_*": OTHER_COMMANDS,
    "test/test_csot.py::TestCsotBulkWrite::"
    "test_timeoutMS_applied_to_entire_bulkWrite,_not_individual_commands": OTHER_COMMANDS,
    "test/test_csot.py::TestCsotRetryability*": OTHER_COMMANDS,
    "test/test_change_stream.py::TestUnifiedChangeStreamsResume*": OTHER_COMMANDS,
    "test/test_retryable_writes.py::TestRetryableWrites::test_batch_splitting_retry_fails": OTHER_COMMANDS,
}

_MONITORING = "test/test_connection_monitoring.py::TestCMAP::test_connection_monitoring_pool"
_DISCOVERY = "test/test_discovery_and_monitoring.py::"
_STREAMING = "test/test_streaming_protocol.py::TestStreamingProtocol::"

# What a pool makes different; without one these are differences without an explanation.
WITH_POOL = {
    "test/test_command_logging.py::TestCommandLoggingRedactedCommands::"
    "test_network_error_in_response_to_saslContinue_is_not_redacted": NO_LOGIN,
    f"{_MONITORING}_checkout_maxConnecting_is_enforced_maxConnecting_is_enforced": OWN_HELLOS,
    f"{_MONITORING}_checkout_maxConnecting_timeout_"
    "waiting_on_maxConnecting_is_limited_by_WaitQueueTimeoutMS": OWN_HELLOS,
    f"{_MONITORING}_checkout_returned_connection_maxConnecting_"
    "threads_blocked_by_maxConnecting_check_out_returned_connections": OWN_HELLOS,
    f"{_MONITORING}_clear_interrupting_pending_connections_"
    "clear_with_interruptInUseConnections_=_true_closes_pending_connections": OWN_HELLOS,
    f"{_MONITORING}_create_min_size_error_error_during_minPoolSize_population_clears_pool": OWN_HELLOS,
    "test/test_csot.py::TestCsotCommandExecution::"
    "test_maxTimeMS_value_in_the_command_is_less_than_timeoutMS": OWN_HELLOS,
    "test/test_csot.py::TestCsotCommandExecution::"
    "test_command_is_not_sent_if_RTT_is_greater_than_timeoutMS": OWN_HELLOS,
    f"{_DISCOVERY}TestPoolManagement::test_pool_unpause": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloTimeout::test_Network_timeout_on_Monitor_check": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloTimeout::test_Network_timeout_on_Monitor_handshake": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloNetworkError::test_Network_error_on_Monitor_check": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloNetworkError::test_Network_error_on_Monitor_handshake": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloCommandError::test_Command_error_on_Monitor_check": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedHelloCommandError::test_Command_error_on_Monitor_handshake": OWN_HELLOS,
    f"{_DISCOVERY}TestUnifiedFindNetworkTimeoutError::test_Ignore_network_timeout_error_on_find": LEFT_BEHIND,
    f"{_DISCOVERY}TestUnifiedLoggingReplicaset::test_Failing_heartbeat": OWN_HELLOS,
    "test/test_pooling.py::TestPooling::test_connection_timeout_message": OWN_HELLOS,
    "test/test_server_selection.py::TestCustomServerSelectorFunction::"
    "test_server_selection_getMore_blocks": OWN_HELLOS,
    f"{_STREAMING}test_failCommand_streaming": OWN_HELLOS,
    f"{_STREAMING}test_heartbeat_awaited_flag": OWN_HELLOS,
    f"{_STREAMING}test_monitor_waits_after_server_check_error": OWN_HELLOS,
    f"{_STREAMING}test_streaming_rtt": OWN_HELLOS,
}

_BACKPRESSURE = "test/test_client_backpressure.py::Test"
_TRANSACTIONS = "test/test_transactions_unified.py::TestUnified"
_TO_BALANCERS = "test/test_load_balancer.py::Test"

# What a router makes different, beside HIDDEN; the last for clients with `loadBalanced=true`.
WITH_ROUTER = {
    "test/test_change_stream.py::TestUnifiedChangeStreamsShowExpandedEvents::"
    "test_when_showExpandedEvents_is_true,_shardCollection_events_are_reported": NO_SHARDS,
    f"{_DISCOVERY}TestUnifiedLoggingSharded::test_Topology_lifecycle": ONE_MONGOS,
    f"{_DISCOVERY}TestUnifiedShardedEmitTopologyChangedBeforeClose::test_Topology_lifecycle": ONE_MONGOS,
    f"{_DISCOVERY}TestUnifiedLoggingSharded::test_Failing_heartbeat": OWN_HELLOS,
    "test/test_server_selection_logging.py::TestServerSelectionLoggingSharded::"
    "test_Failure_due_to_unreachable_server": OWN_HELLOS,
    f"{_TRANSACTIONS}MongosRecoveryToken::test_commitTransaction_explicit_retries_include_recoveryToken": ANY_COMMITS,
    f"{_TRANSACTIONS}MongosPinAuto::test_remain_pinned_after_non-transient_Interrupted_error_on_insertOne": ANY_COMMITS,
    "test/test_unified_format.py::TestUnifiedTestFormatValidPassPocTransactionsMongosPinAuto::"
    "test_remain_pinned_after_non-transient_Interrupted_error_on_insertOne": ANY_COMMITS,
    f"{_TO_BALANCERS}LoadBalancerNonLbConnectionEstablishment::"
    "test_operations_against_non-load_balanced_clusters_fail_if_URI_contains_loadBalanced=true": IS_BOTH,
    f"{_TO_BALANCERS}LB::test_exhaust_cursor": NO_EXHAUST,
    f"{_TO_BALANCERS}LoadBalancerSdamErrorHandling::"
    "test_errors_during_the_initial_connection_hello_are_ignored": OWN_HELLOS,
    f"{_BACKPRESSURE}Backpressure::test_retry_overload_error_getMore": NOT_BY_PYMONGO,
    f"{_BACKPRESSURE}ClientBackpressureGetMoreRetried::test_getMores_are_retried*": NOT_BY_PYMONGO,
}
