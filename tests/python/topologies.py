"""How clients reach the server, directly and through docward."""

from contextlib import ExitStack, closing

import servers

# "members" is a replica set of one behind its member's listener. All others are a set of three behind one router, or
# behind two that are in the connection string, behind a balancer, or behind a balancer with `loadBalanced=true`.
TOPOLOGIES = ["members", "router", "routers-seeds", "routers-balanced", "routers-load-balanced"]


class Way:
    """A way of clients to the server, directly or through docwards; `addresses` are those that replies may contain."""

    def __init__(self, hosts, options, docwards=(), router=False):
        self.hosts = hosts
        self.options = options
        self.docwards = docwards
        self.router = router
        self.addresses = [*hosts, *(docward.address for docward in docwards)]

    def uri(self, *options, user=""):
        # mongosh's database is inserted before the options.
        return f"mongodb://{user}{','.join(self.hosts)}/?{'&'.join([*self.options, *options])}"

    def assert_sound(self):
        assert not [line for docward in self.docwards for line in docward.log if "panicked" in line]


class Topology:
    """Starts docwards in front of `server` with `start`, which ends them too."""

    def __init__(self, name, server, start):
        self.name = name
        self.server = server
        self.start = start
        self.direct = Way(server.addresses, ["replicaSet=rs0"])
        self.balancers = ExitStack()

    def through(self, rules):
        """The way through docwards with these rules."""
        if self.name == "members":
            docward = self.start(rules)
            return Way([docward.address], ["replicaSet=rs0"], [docward])
        balanced = "balanced" in self.name
        admins = [servers.free_port() for _ in range(2 if self.name.startswith("routers") else 1)]
        common = ("--topology", "router", *(("--proxy-protocol", "127.0.0.1") if balanced else ()))
        docwards = [
            self.start(rules, "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", *common, upstream=self.server.uri)
            for port, admin in zip(servers.neighbours(), admins)
        ]
        hosts = [docward.address for docward in docwards]
        if balanced:
            ports = [host.rsplit(":", 1)[1] for host in hosts]
            balancer = servers.Haproxy("roundrobin", ports, admins)
            hosts = [self.balancers.enter_context(closing(balancer)).address]
        options = ["loadBalanced=true"] if self.name.endswith("load-balanced") else ["retryWrites=true"]
        return Way(hosts, options, docwards, router=True)
