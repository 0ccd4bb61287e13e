//! A replica set of several members on loopback, and its failures: elections, members that stop, die, are added or
//! removed. A member's index never changes. Elections happen only on a test's request: members that miss heartbeats
//! because the machine is slow start none for five seconds.
//!
//! Blocking, like `mongod`; async tests call it from `block_in_place` or a multi-threaded runtime.

use bson::{Bson, Document, doc};

use super::mongod::Mongod;
use super::process::{SOON, TIMEOUT, poll};
use super::raw;

/// A running replica set named `rs0`; dropping it kills its members.
pub struct ReplicaSet {
    members: Vec<Mongod>,
}

impl ReplicaSet {
    /// Starts a replica set of `size` members, and waits for a primary and until all others are secondaries.
    pub fn start(size: usize) -> ReplicaSet {
        ReplicaSet::start_with(size, |_, _| {})
    }

    /// The same; `change` may change the configuration of each member, for instance `hidden` or `arbiterOnly`.
    pub fn start_with(size: usize, change: impl Fn(usize, &mut Document)) -> ReplicaSet {
        let members = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..size).map(|_| scope.spawn(Mongod::start_member)).collect();
            starting.into_iter().map(|member| member.join().unwrap()).collect()
        });
        let set = ReplicaSet { members };
        let member = |(index, mongod): (usize, &Mongod)| {
            let mut member = doc! { "_id": index as i32, "host": mongod.address() };
            change(index, &mut member);
            Bson::from(member)
        };
        let members: Vec<Bson> = set.members.iter().enumerate().map(member).collect();
        let settings = doc! { "electionTimeoutMillis": 5000, "heartbeatIntervalMillis": 300 };
        let configuration = doc! { "_id": "rs0", "members": members, "settings": settings };
        let reply = set.members[0].command("admin", doc! { "replSetInitiate": configuration });
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "replSetInitiate: {reply}");
        set.await_primary();
        set.await_settled();
        set
    }

    /// The connection string with every member and the replica set's name.
    pub fn uri(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(Mongod::address).collect();
        format!("mongodb://{}/?replicaSet=rs0", hosts.join(","))
    }

    /// A driver connected directly to the replica set.
    pub async fn client(&self) -> mongodb::Client {
        mongodb::Client::with_uri_str(self.uri()).await.unwrap()
    }

    /// Every member ever started, including removed and dead ones.
    pub fn members(&self) -> &[Mongod] {
        &self.members
    }

    pub fn member(&self, index: usize) -> &Mongod {
        &self.members[index]
    }

    /// Waits for a writable primary by the members' own hello replies; if two claim it, the one elected later.
    pub fn await_primary(&self) -> usize {
        poll(TIMEOUT, || self.primary()).expect("the set elected no primary")
    }

    /// The writable primary, if there is one now.
    pub fn primary(&self) -> Option<usize> {
        let elected = |index: usize| {
            let hello = self.hello(index).filter(|hello| is(hello, "isWritablePrimary"))?;
            Some((hello.get_object_id("electionId").ok()?, index))
        };
        (0..self.members.len()).filter_map(elected).max().map(|(_, index)| index)
    }

    /// The members that are secondaries now.
    pub fn secondaries(&self) -> Vec<usize> {
        let is_secondary = |index: &usize| self.hello(*index).is_some_and(|hello| is(&hello, "secondary"));
        (0..self.members.len()).filter(is_secondary).collect()
    }

    /// Waits until every member that was not killed or stopped is primary, secondary or arbiter.
    pub fn await_settled(&self) {
        let states = ["isWritablePrimary", "secondary", "arbiterOnly"];
        let in_a_state = |hello: Document| states.iter().any(|state| is(&hello, state));
        let settled = |index: usize| !self.members[index].is_awake() || self.hello(index).is_some_and(in_a_state);
        poll(TIMEOUT, || (0..self.members.len()).all(settled).then_some(())).expect("the set does not settle");
    }

    /// Makes the primary step down, waits for another one, and returns it.
    pub fn step_down(&self) -> usize {
        let before = self.await_primary();
        poll(TIMEOUT, || {
            let step_down = doc! { "replSetStepDown": 30, "secondaryCatchUpPeriodSecs": 10 };
            let reply = self.members[before].command("admin", step_down);
            // The stepdown fails while no secondary has caught up.
            (reply.get_f64("ok").unwrap() == 1.0).then_some(())
        })
        .expect("the primary does not step down");
        let after = poll(TIMEOUT, || self.primary().filter(|primary| *primary != before));
        // The old primary may be elected again once it is eligible.
        self.members[before].command("admin", doc! { "replSetFreeze": 0 });
        after.expect("no other primary")
    }

    /// SIGSTOP: the member holds its connections and does not answer.
    pub fn stop(&self, index: usize) {
        self.members[index].signal("STOP");
    }

    /// SIGCONT after `stop`.
    pub fn go_on(&self, index: usize) {
        self.members[index].signal("CONT");
    }

    /// SIGKILL, like a machine failure.
    pub fn kill(&mut self, index: usize) {
        self.members[index].kill();
    }

    /// Restarts a member after `kill`, and waits until it is in the replica set.
    pub fn restart(&mut self, index: usize) {
        self.members[index].restart_member();
        self.await_settled();
    }

    /// Starts a new member and adds it to the configuration; it is a secondary when this returns.
    pub fn add(&mut self) -> usize {
        let index = self.start_next();
        self.add_started(index);
        index
    }

    /// Starts a new member that is not in the configuration yet.
    pub fn start_next(&mut self) -> usize {
        self.members.push(Mongod::start_member());
        self.members.len() - 1
    }

    /// Adds it to the configuration; it is a secondary when this returns.
    pub fn add_started(&self, index: usize) {
        let host = self.members[index].address();
        self.reconfigure(|configuration| {
            let members = configuration.get_array_mut("members").unwrap();
            members.push(doc! { "_id": index as i32, "host": &host }.into());
        });
        let is_secondary = || self.secondaries().contains(&index).then_some(());
        poll(TIMEOUT, is_secondary).expect("the new member did not become a secondary");
    }

    /// Removes a member from the configuration; its mongod keeps running. Must not be the primary.
    pub fn remove(&self, index: usize) {
        let host = self.members[index].address();
        self.reconfigure(|configuration| {
            let members = configuration.get_array_mut("members").unwrap();
            members.retain(|member| member.as_document().unwrap().get_str("host").unwrap() != host);
        });
    }

    /// Changes the configuration through the primary.
    pub fn reconfigure(&self, change: impl Fn(&mut Document)) {
        let last = std::cell::RefCell::new(Document::new());
        poll(TIMEOUT, || {
            let primary = self.primary()?;
            let reply = self.members[primary].command("admin", doc! { "replSetGetConfig": 1 });
            let mut configuration = reply.get_document("config").ok()?.clone();
            change(&mut configuration);
            let version = configuration.get_i32("version").unwrap();
            configuration.insert("version", version + 1);
            *last.borrow_mut() = self.members[primary].command("admin", doc! { "replSetReconfig": configuration });
            // The change fails while the previous configuration has not reached all members.
            (last.borrow().get_f64("ok").unwrap() == 1.0).then_some(())
        })
        .unwrap_or_else(|| panic!("the set cannot be reconfigured: {}", last.borrow()));
    }

    /// A member's hello reply; `None` if the member was killed or stopped.
    pub fn hello(&self, index: usize) -> Option<Document> {
        let member = &self.members[index];
        let mut client = member.is_awake().then(|| raw::Client::try_connect(&member.address()).ok())??;
        client.try_command("admin", doc! { "hello": 1 }, SOON)
    }
}

fn is(hello: &Document, state: &str) -> bool {
    hello.get_bool(state).unwrap_or(false)
}
