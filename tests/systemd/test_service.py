"""Tests docs/install.md and the units under a live systemd: installs, runs, breaks and purges PACKAGE and NEXT, a later
revision of it. scripts/try-systemd.sh runs this in a separate container, as root."""

import socket
import sys
import time

from machine import AUTHORITY, CONFIGURATION, PORT, RULES, Load, client, direct, install, journal, now, run, setting, state
from machine import wait_for, write
from pymongo import MongoClient
from pymongo.errors import OperationFailure

PACKAGE, NEXT = sys.argv[1:]
PLAIN = "listen: 127.0.0.1:27018\nupstream: mongodb://127.0.0.1:27017/?replicaSet=rs0\n"
SEQUENCE = """\
version: 1
rules:
  - name: numbers
    namespace: shop.orders
    sequence: {field: no, counter: orders, collection: counters}
"""
PROTECTED = SEQUENCE + """\
  - name: whole
    namespace: shop.orders
    replacement: {policy: reject}
"""


def configure(text):
    write(CONFIGURATION, text)


def restart():
    run("systemctl reset-failed docward; systemctl restart docward")


def replaces(orders):
    """Whether a replacement without a version is accepted."""
    orders.update_one({"_id": "whole"}, {"$set": {"a": 1}}, upsert=True)
    try:
        orders.replace_one({"_id": "whole"}, {"a": 2})
        return True
    except OperationFailure as error:
        assert error.code == 121, error
        return False


def installing_starts_nothing():
    install(PACKAGE)
    assert (state(), state("docward.socket")) == ("inactive", "inactive")
    assert run("systemctl is-enabled docward docward.socket", None).split() == ["disabled", "disabled"]
    assert run(f"stat --format '%U:%G %a' /etc/docward {CONFIGURATION}").split("\n")[:2] == [
        "root:docward 750",
        "root:docward 640",
    ]
    assert "docward-serve" in run("MANPAGER=cat man docward-serve")


def start_returns_when_it_listens():
    run("systemctl enable --now docward")
    socket.create_connection(("127.0.0.1", PORT)).close()
    run(f"docward health --config {CONFIGURATION}")


def the_service_has_few_privileges():
    pid = run("systemctl show --value --property MainPID docward").strip()
    status = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb")} == {0}, status
    assert run("id --user docward").strip() == status["Uid"].split()[0]
    for namespace in ("mnt", "user", "uts"):
        assert run(f"readlink /proc/{pid}/ns/{namespace}") != run(f"readlink /proc/1/ns/{namespace}"), namespace
    mounts = [line.split() for line in open(f"/proc/{pid}/mountinfo")]
    writable = {mount[4] for mount in mounts if "rw" in mount[5].split(",")}
    assert not {"/", "/etc/docward", "/home", "/root", "/dev"} & writable, writable
    assert "/run/docward" in writable, writable
    exposure = run("systemd-analyze security --no-pager docward").split("Overall exposure level")[1]
    assert float(exposure.split(": ")[1].split()[0]) <= 1.2, exposure


def a_configuration_error_is_reported_without_a_restart():
    since = now()
    configure(PLAIN.replace("listen", "lisen"))
    run("systemctl restart docward", 1)
    time.sleep(2.5)
    assert state() == "failed"
    status = run("systemctl status --no-pager docward", 3)
    assert "did you mean `listen`?" in status and "status=64" in status, status
    assert "did you mean `listen`?" in journal(since, "--priority err")
    assert journal(since).count("unknown key") == 1
    assert "unknown key" in run(f"docward check --config {CONFIGURATION}", 1)


def rules_are_reloaded_unless_they_are_invalid():
    run("mkdir /etc/docward/rules")
    write(RULES, PROTECTED)
    configure(PLAIN + "rules: [rules/]\n")
    restart()
    orders = client().shop.orders
    assert not replaces(orders)
    since = now()
    write(RULES, PROTECTED.replace("reject", "rejact"))
    run("systemctl reload docward", 1)
    assert state() == "active" and not replaces(orders)
    assert "did you mean `reject`?" in journal(since)
    wait_for(lambda: "stay in force" in journal(since, "--priority err"), "a line that the rules are refused")
    write(RULES, SEQUENCE)
    run("systemctl reload docward")
    wait_for(lambda: replaces(orders), "the new rules hold")
    assert "INFO" in journal(since, "--priority info") and "INFO" not in journal(since, "--priority err")


def a_killed_service_is_restarted():
    for _ in range(8):
        run("systemctl kill --signal KILL docward")
        wait_for(lambda: state() != "active", "its end")
        wait_for(lambda: state() == "active", "its return")
    client().admin.command("ping")


def names_certificates_numbers_and_sockets_work_in_the_sandbox():
    """DNS, a key with group read permission, the lease of a sequence, the query listener, the hand-over folder."""
    run("""
        mkdir --parents /etc/docward/tls && cd /etc/docward/tls && exec >/dev/null 2>&1
        openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=authority -keyout authority.key -out authority.pem
        openssl req -newkey rsa:2048 -nodes -subj /CN=docward -keyout server.key -out request.pem
        echo subjectAltName=IP:127.0.0.1 >extensions
        openssl x509 -req -in request.pem -CA authority.pem -CAkey authority.key -extfile extensions -out server.pem
        addgroup --system certificates && adduser docward certificates
        chgrp certificates server.key && chmod 0640 server.key
    """)
    write(RULES, PROTECTED + "  - {name: read, namespace: shop.orders, reads: {prefer: secondary, max_staleness: 90s}}\n")
    configure(
        "listen: 127.0.0.1:27018\nquery_listen: 127.0.0.1:27118\nrules: [rules/]\nhand_over: /run/docward/hand-over.sock\n"
        "upstream: mongodb://db1.example.net:27017/?replicaSet=rs0\n"
        "tls: {certificate: tls/server.pem, key: tls/server.key}\n"
    )
    restart()
    secured = {"tls": True, "tlsCAFile": AUTHORITY}
    orders = client(**secured).shop.orders
    number = orders.insert_one({}).inserted_id
    assert orders.find_one(number)["no"] > 0 and not replaces(orders)
    assert MongoClient("127.0.0.1", 27118, **secured).shop.orders.count_documents({}) > 0
    assert "docward" in run("stat --format %U /run/docward/hand-over.sock")


def the_next_unit_takes_over():
    """As described in docs/restarts.md; the connections stay open, and the unit has the restarts and the protection of docward.service."""
    configure(PLAIN + "hand_over: /run/docward/hand-over.sock\n")
    restart()
    with Load():
        run("systemctl cat docward >/run/systemd/system/docward-next.service && systemctl daemon-reload")
        run("systemctl start docward-next")
        wait_for(lambda: state() == "inactive", "the end of the old process")
        run("systemctl start docward")
        wait_for(lambda: state("docward-next") == "inactive", "the end of the process between")
    assert state() == "active"


def docward_waits_for_late_name_servers():
    configure("listen: 127.0.0.1:27018\nupstream: mongodb+srv://cluster0.example.net/?tls=false\n")
    run("systemctl stop dnsmasq-test")
    run("systemctl restart docward", 1)
    assert state() == "activating"
    run("systemctl start dnsmasq-test")
    wait_for(lambda: state() == "active", "its start", 60)
    client().admin.command("ping")


def the_socket_refuses_no_connection():
    configure(PLAIN)
    run("systemctl stop docward && systemctl enable --now docward.socket docward")
    with Load():
        run("systemctl restart docward")
        time.sleep(1)
        run("systemctl restart docward")
    with Load():
        install(NEXT)
    assert "-2" in run("dpkg-query --show docward")
    assert (state(), state("docward.socket")) == ("active", "active")


def a_client_starts_the_service():
    run("systemctl stop docward")
    assert state() == "inactive"
    client().admin.command("ping")
    assert state() == "active"


def the_socket_works_again_after_a_configuration_error():
    configure(PLAIN.replace("listen", "lisen"))
    run("systemctl restart docward", 1)
    with socket.create_connection(("127.0.0.1", PORT)):
        wait_for(lambda: state("docward.socket") == "failed", "the socket is given up")
    configure(PLAIN)
    restart()
    assert (state(), state("docward.socket")) == ("active", "active")
    client().admin.command("ping")


def a_socket_with_another_address_is_reported():
    configure(PLAIN.replace("127.0.0.1:27018", "0.0.0.0:27018"))
    since = now()
    run("systemctl restart docward", 1)
    assert "LISTEN_FDS passed a socket on 127.0.0.1:27018" in journal(since, "--priority err")
    run("systemctl disable --now docward.socket; systemctl stop docward")
    configure(PLAIN)
    restart()


def stopping_waits_for_transactions():
    """Longer than systemd's default timeout."""
    configure(PLAIN + "drain_timeout: 30s\n")
    run("mkdir --parents /run/systemd/system/docward.service.d")
    with setting("/run/systemd/system/docward.service.d/test.conf", "[Service]\nTimeoutStopSec=2s\n"):
        restart()
        connected = client()
        connected.shop.paid.insert_one({})
        with connected.start_session() as session:
            session.start_transaction()
            connected.shop.paid.insert_one({"_id": "late"}, session=session)
            run("systemctl stop --no-block docward")
            time.sleep(5)
            assert state() == "deactivating"
            session.commit_transaction()
        wait_for(lambda: state() == "inactive", "its end")
    assert direct().shop.paid.find_one("late")


def purging_keeps_the_operators_files():
    run("DEBIAN_FRONTEND=noninteractive apt-get purge --yes docward")
    assert "could not be found" in run("systemctl status docward docward.socket", None)
    assert not run("find /etc/systemd /lib/systemd /usr/bin /var/lib/systemd -name '*docward*'")
    assert run("find /etc/docward -maxdepth 1").split() == ["/etc/docward", "/etc/docward/rules", "/etc/docward/tls"]


STEPS = [
    installing_starts_nothing,
    start_returns_when_it_listens,
    the_service_has_few_privileges,
    a_configuration_error_is_reported_without_a_restart,
    rules_are_reloaded_unless_they_are_invalid,
    a_killed_service_is_restarted,
    names_certificates_numbers_and_sockets_work_in_the_sandbox,
    the_next_unit_takes_over,
    docward_waits_for_late_name_servers,
    the_socket_refuses_no_connection,
    a_client_starts_the_service,
    the_socket_works_again_after_a_configuration_error,
    a_socket_with_another_address_is_reported,
    stopping_waits_for_transactions,
    purging_keeps_the_operators_files,
]

direct().admin.command("replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": "127.0.0.1:27017"}]})
for step in STEPS:
    began = time.monotonic()
    step()
    print(f"{step.__name__.replace('_', ' ')} ({time.monotonic() - began:.1f} s)", flush=True)
