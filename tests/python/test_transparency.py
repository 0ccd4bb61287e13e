"""Operations that no rule matches have the same requests and replies as without docward.

Each operation of the corpus runs once directly and once through docward, with no rule and
with rules on other namespaces, uncompressed and compressed; everything that a client can see
must be equal, field by field.
"""

import difflib
import functools

import pytest

from corpus import OPERATIONS
from observe import observe

UNRELATED_RULES = """\
version: 1
rules:
  - name: unrelated-replacement
    namespace: [unrelated.people, unrelated.orders]
    replacement: { policy: reject }
  - name: unrelated-timestamps
    namespace: unrelated.*
    timestamps: { source: published_at }
  - name: unrelated-sequence
    namespace: unrelated.orders
    sequence: { field: order_no, counter: order_no }
"""

# One letter in the database's name, so that names have equal length, because some replies contain the length.
RULES = {"n": "", "u": UNRELATED_RULES, "c": UNRELATED_RULES}
COMPRESSORS = ["snappy", "zlib", "zstd"]

direct_results = {}


@pytest.fixture(scope="session")
def proxies(proxy_factory):
    """One docward for each set of rules, started on first use."""
    started = functools.cache(proxy_factory)
    return lambda key: started(RULES[key])


@pytest.mark.parametrize("rules", RULES, ids=["no_rules", "unrelated_rules", "compressed"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_transparency(operation, rules, mongod, proxies):
    if rules == "c" and operation.name == "statements_with_unknown_fields":
        pytest.skip("pymongo cannot compress a command without statements")
    proxy = proxies(rules)
    index = OPERATIONS.index(operation)
    name = f"op{index:03}"
    options = f"&compressors={COMPRESSORS[index % 3]}" if rules == "c" else ""
    if (name, options) not in direct_results:
        # Another database each time, because the oplog keeps earlier operations.
        database = f"{name}_{'e' if options else 'd'}"
        seen = observe(operation, f"{mongod.uri}{options}", database, [mongod.address])
        direct_results[name, options] = seen
    direct = direct_results[name, options]
    uri = f"mongodb://{proxy.address}/?replicaSet=rs0{options}"
    through = observe(operation, uri, f"{name}_{rules}", [mongod.address, proxy.address])
    if operation.unclear and RULES[rules]:
        # docward itself rejects it, with its own error.
        assert '"type": "OperationFailure"' in through
        return
    if through != direct:
        lines = (text.splitlines() for text in (direct, through))
        difference = difflib.unified_diff(*lines, "directly", "through docward", n=6, lineterm="")
        pytest.fail("\n".join(list(difference)[:200]), pytrace=False)
    assert not [line for line in proxy.log if "panicked" in line]


def test_the_corpus_is_large_enough():
    assert len(OPERATIONS) >= 90
