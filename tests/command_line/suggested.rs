//! Small applications in front of a real mongod: `docward record` records them, `docward suggest` proposes rules, and
//! the same applications must work when `docward serve` enforces them.

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use mongodb::{Client, Collection, Database};
use support::mongod::Mongod;
use support::process::docward;
use support::proxy::Docward;

/// What `suggest` prints for an application. The proposed rules load, and the application works with them enforced.
async fn suggested(application: impl AsyncFn(&Database)) -> String {
    let mongod = Mongod::shared();
    let name = mongod.fresh_database();
    let folder = tempfile::tempdir().unwrap();
    let (capture, rules) = (folder.path().join("traffic.bson"), folder.path().join("proposed.yaml"));
    let recorder = Docward::before(&mongod.uri()).subcommand("record").argument(capture.to_str().unwrap());
    let mut recorder = recorder.start();
    application(&database(&recorder.address(), &name).await).await;
    assert!(recorder.terminate().success());

    let done = docward(&["suggest", capture.to_str().unwrap()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    if !text.contains("\nrules:\n") {
        return text.replace(&name, "app");
    }
    std::fs::write(&rules, &text).unwrap();
    let checked = docward(&["check", rules.to_str().unwrap()]);
    assert!(checked.status.success(), "{text}\n{}", String::from_utf8_lossy(&checked.stderr));

    mongod.command(&name, doc! {"dropDatabase": 1});
    let enforcing = Docward::start(mongod, &text.replace("mode: shadow", "mode: enforce"));
    println!("{}", text.replace(&name, "app"));
    application(&database(&enforcing.address(), &name).await).await;
    text.replace(&name, "app")
}

async fn database(address: &str, name: &str) -> Database {
    let uri = format!("mongodb://{address}/?directConnection=true&appName=naive&maxPoolSize=1&retryWrites=false");
    Client::with_uri_str(uri).await.unwrap().database(name)
}

fn collection(database: &Database, name: &str) -> Collection<Document> {
    database.collection(name)
}

/// The lines of the proposed rules, without comments.
fn proposed(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::trim).collect()
}

fn assert_proposed(text: &str, pattern: &str) {
    assert!(proposed(text).iter().any(|line| line.starts_with(pattern)), "{pattern} is not proposed:\n{text}");
}

fn assert_not_proposed(text: &str, pattern: &str, reason: &str) {
    assert!(!proposed(text).iter().any(|line| line.starts_with(pattern)), "{pattern} is proposed:\n{text}");
    assert!(text.contains(reason), "'{reason}' is not in:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_number_plus_one_becomes_a_sequence() {
    let text = suggested(async |database| {
        let orders = collection(database, "orders");
        for number in 1..=6 {
            let last = orders.find_one(doc! {}).sort(doc! {"number": -1}).await.unwrap();
            let next = last.map_or(1, |last| number_of(&last, "number") + 1);
            orders.insert_one(doc! {"number": next, "total": 10 * number}).await.unwrap();
        }
        let last = orders.find_one(doc! {}).sort(doc! {"number": -1}).await.unwrap().unwrap();
        assert_eq!(number_of(&last, "number"), 6);
    });
    assert_proposed(&text.await, "sequence: { field: number,");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_read_and_set_is_found() {
    let text = suggested(async |database| {
        let pages = collection(database, "pages");
        pages.insert_one(doc! {"_id": "home", "hits": 0, "title": "Home"}).await.unwrap();
        for _ in 0..8 {
            let page = pages.find_one(doc! {"_id": "home"}).await.unwrap().unwrap();
            let hits = number_of(&page, "hits") + 1;
            let done = pages.update_one(doc! {"_id": "home"}, doc! {"$set": {"hits": hits}}).await.unwrap();
            assert_eq!(done.modified_count, 1);
        }
    });
    assert_not_proposed(&text.await, "bounds", "'hits' was read, computed by the application and set 8 times");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_that_is_read_and_set_becomes_bounds() {
    let text = suggested(async |database| {
        let books = collection(database, "books");
        books.insert_one(doc! {"_id": 1, "stock": 20}).await.unwrap();
        for _ in 0..8 {
            let book = books.find_one(doc! {"_id": 1}).await.unwrap().unwrap();
            let stock = number_of(&book, "stock") - 1;
            books.update_one(doc! {"_id": 1}, doc! {"$set": {"stock": stock}}).await.unwrap();
        }
        let book = books.find_one(doc! {"_id": 1}).await.unwrap().unwrap();
        assert_eq!(number_of(&book, "stock"), 12);
    });
    assert_proposed(&text.await, "bounds: { field: stock, min: 0 }");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_without_a_fence_are_found() {
    // A queue rule would reject this worker's updates: it has to change first.
    let text = suggested(async |database| {
        let jobs = collection(database, "jobs");
        for number in 0..5 {
            jobs.insert_one(doc! {"_id": number, "state": "new", "mail": "a@example.com"}).await.unwrap();
        }
        let claim = doc! {"$set": {"state": "running", "started": DateTime::now()}};
        while let Some(job) = jobs.find_one_and_update(doc! {"state": "new"}, claim.clone()).await.unwrap() {
            let id = job.get("_id").unwrap();
            let done = jobs.update_one(doc! {"_id": id}, doc! {"$set": {"state": "done"}}).await.unwrap();
            assert_eq!(done.modified_count, 1);
        }
        assert_eq!(jobs.count_documents(doc! {"state": "done"}).await.unwrap(), 5);
    });
    let text = text.await;
    assert_not_proposed(&text, "queue", "A job was claimed 5 times by setting 'state'");
    assert!(text.contains("Let each claim set the lock"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_with_a_lock_are_found() {
    let text = suggested(async |database| {
        let jobs = collection(database, "jobs");
        for number in 0..5 {
            jobs.insert_one(doc! {"_id": number, "locked": false, "try": 0, "done": false}).await.unwrap();
        }
        let claim = doc! {"$set": {"locked": true, "tlocked": DateTime::now()}, "$inc": {"try": 1}};
        let free = doc! {"locked": false, "done": false};
        while let Some(job) = jobs.find_one_and_update(free.clone(), claim.clone()).await.unwrap() {
            let id = job.get("_id").unwrap();
            let update = doc! {"$set": {"locked": false, "done": true}};
            let done = jobs.update_one(doc! {"_id": id}, update).await.unwrap();
            assert_eq!(done.modified_count, 1);
        }
        assert_eq!(jobs.count_documents(doc! {"done": true}).await.unwrap(), 5);
    });
    let text = text.await;
    assert!(text.contains("A job was claimed 5 times by setting 'locked'"), "{text}");
}

type Node = (&'static str, Option<&'static str>, Option<&'static str>);

const BOOKS: [Node; 6] = [
    ("Books", None, None),
    ("Programming", Some("Books"), Some(",Books,")),
    ("Rust", Some("Programming"), Some(",Books,Programming,")),
    ("Go", Some("Programming"), Some(",Books,Programming,")),
    ("Databases", Some("Programming"), Some(",Books,Programming,")),
    ("MongoDB", Some("Databases"), Some(",Books,Programming,Databases,")),
];

async fn grow(categories: &Collection<Document>, nodes: &[Node]) {
    for (id, parent, path) in nodes {
        categories.insert_one(doc! {"_id": id, "parent": parent, "path": path}).await.unwrap();
    }
}

async fn path_of(categories: &Collection<Document>, id: &str) -> Option<String> {
    let node = categories.find_one(doc! {"_id": id}).await.unwrap().unwrap();
    node.get_str("path").ok().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_a_tree_become_a_tree() {
    // It moves a node, and then sets the paths of the nodes below itself.
    let text = suggested(async |database| {
        let categories = collection(database, "categories");
        grow(&categories, &BOOKS).await;
        for (id, set) in [
            ("Databases", doc! {"parent": "Books", "path": ",Books,"}),
            ("MongoDB", doc! {"path": ",Books,Databases,"}),
        ] {
            let done = categories.update_one(doc! {"_id": id}, doc! {"$set": set}).await.unwrap();
            assert_eq!(done.matched_count, 1);
        }
        categories.delete_one(doc! {"_id": "Go"}).await.unwrap();
        assert_eq!(path_of(&categories, "Databases").await.unwrap(), ",Books,");
        assert_eq!(path_of(&categories, "MongoDB").await.unwrap(), ",Books,Databases,");
    });
    assert_proposed(&text.await, "tree: { path: path, parent: parent,");
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_that_a_rule_would_not_accept_are_not_broken() {
    let text = suggested(async |database| {
        let nodes = [
            ("Books", None, Some("/Books")),
            ("Programming", Some("Books"), Some("/Books/Programming")),
            ("Rust", Some("Programming"), Some("/Books/Programming/Rust")),
            ("Go", Some("Programming"), Some("/Books/Programming/Go")),
        ];
        grow(&collection(database, "categories"), &nodes).await;
    });
    assert_not_proposed(&text.await, "tree", "statements do not fit it: a text without a separator at both ends");
    let text = suggested(async |database| {
        let categories = collection(database, "categories");
        grow(&categories, &BOOKS).await;
        // Its path does not match its parent any more.
        categories.update_one(doc! {"_id": "Go"}, doc! {"$set": {"path": ",Books,"}}).await.unwrap();
    });
    assert_not_proposed(&text.await, "tree", "an update sets a path that does not match the parent");
    let text = suggested(async |database| {
        let categories = collection(database, "categories");
        grow(&categories, &BOOKS).await;
        categories.delete_one(doc! {"_id": "Databases"}).await.unwrap();
    });
    assert_not_proposed(&text.await, "tree", "a delete of a node with children");
}

#[tokio::test(flavor = "multi_thread")]
async fn copied_names_become_copies() {
    let text = suggested(async |database| {
        let (users, posts) = (collection(database, "users"), collection(database, "posts"));
        for (id, name) in [("u1", "Ada"), ("u2", "Grace"), ("u3", "Edsger")] {
            users.insert_one(doc! {"_id": id, "name": name, "mail": format!("{id}@example.com")}).await.unwrap();
        }
        for post in 0..9 {
            let id = format!("u{}", post % 3 + 1);
            let user = users.find_one(doc! {"_id": &id}).await.unwrap().unwrap();
            let name = user.get_str("name").unwrap();
            let new = doc! {"_id": post, "user": &id, "user_name": name, "text": format!("post {post}")};
            posts.insert_one(new).await.unwrap();
        }
        let renamed = users.update_one(doc! {"_id": "u1"}, doc! {"$set": {"name": "Ada Lovelace"}}).await.unwrap();
        assert_eq!(renamed.modified_count, 1);
    });
    assert_proposed(&text.await, "copies: [{ into:");
}

/// A wiki that edits two pages.
async fn edits(database: &Database, keep: impl AsyncFn(&Database, &Document)) {
    let pages = collection(database, "pages");
    for id in ["home", "help"] {
        pages
            .insert_one(doc! {"_id": id, "title": format!("{id} 0"), "text": format!("text of {id} 0")})
            .await
            .unwrap();
    }
    for edit in 1..=4 {
        for id in ["home", "help"] {
            let page = pages.find_one(doc! {"_id": id}).await.unwrap().unwrap();
            keep(database, &page).await;
            let title = format!("{id} {edit}");
            let set = doc! {"$set": {"title": &title, "text": format!("text of {title}")}};
            pages.update_one(doc! {"_id": id}, set).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_states_are_no_copies() {
    let text = suggested(async |database| {
        edits(database, async |database, page| {
            let versions = collection(database, "pages_versions");
            let rev = versions.count_documents(doc! {}).await.unwrap() as i64;
            let version =
                doc! {"page": page.get_str("_id").unwrap(), "title": page.get_str("title").unwrap(), "rev": rev};
            versions.insert_one(version).await.unwrap();
        })
        .await;
        let versions = collection(database, "pages_versions");
        assert!(versions.find_one(doc! {"page": "home", "title": "home 0"}).await.unwrap().is_some());
    });
    assert_not_proposed(
        &text.await,
        "copies",
        "6 inserts have other values of 'title' than the newest one for the same 'page'",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_the_application_updates_become_one_rule_for_all_fields() {
    let text = suggested(async |database| {
        let links = collection(database, "links");
        edits(database, async |_, page| {
            let id = page.get_str("_id").unwrap();
            let set = doc! {"page_title": page.get_str("title").unwrap(), "page_text": page.get_str("text").unwrap()};
            links.update_many(doc! {"page": id}, doc! {"$set": set.clone()}).await.unwrap();
            let mut link = doc! {"page": id};
            link.extend(set);
            links.insert_one(link).await.unwrap();
        })
        .await;
    });
    let text = text.await;
    let rule = "copies: [{ into: app.links, key: page, fields: { text: page_text, title: page_title } }]";
    let other = "copies: [{ into: app.links, key: page, fields: { title: page_title, text: page_text } }]";
    assert!(proposed(&text).iter().any(|line| [rule, other].contains(line)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_the_application_counts_and_checks_is_not_changed() {
    // What Mongoose sends: __v is incremented with $push, and required where an element is set by its position. The
    // document stays in the memory of the process.
    let text = suggested(async |database| {
        let posts = collection(database, "posts");
        for id in 0..4 {
            posts.insert_one(doc! {"_id": id, "title": "a", "comments": [], "__v": 0}).await.unwrap();
            let push = doc! {"$push": {"comments": {"n": 1}}, "$inc": {"__v": 1}};
            posts.update_one(doc! {"_id": id}, push).await.unwrap();
            posts.update_one(doc! {"_id": id}, doc! {"$set": {"title": "b"}}).await.unwrap();
            let set = doc! {"$set": {"comments.0.n": 2}, "$inc": {"__v": 1}};
            let done = posts.update_one(doc! {"_id": id, "__v": 1}, set).await.unwrap();
            assert_eq!(done.matched_count, 1, "its next save");
            // Another program saves whole documents.
            let mut post = posts.find_one(doc! {"_id": id}).await.unwrap().unwrap();
            post.insert("seen", true);
            assert_eq!(posts.replace_one(doc! {"_id": id}, post).await.unwrap().matched_count, 1);
        }
    });
    let text = text.await;
    let reason = "would match nothing, because the rule changes the version between the application's reads";
    assert_not_proposed(&text, "replacement: { policy: check_version", reason);
    assert_proposed(&text, "replacement: { policy: merge }");
    assert!(text.contains("The recorded ones remove no field."), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_that_grows_gets_a_limit() {
    let text = suggested(async |database| {
        let logs = collection(database, "logs");
        logs.insert_one(doc! {"_id": "server", "events": []}).await.unwrap();
        for event in 0..30 {
            let push = doc! {"$push": {"events": {"n": event, "at": DateTime::now()}}};
            let done = logs.update_one(doc! {"_id": "server"}, push).await.unwrap();
            assert_eq!(done.modified_count, 1);
        }
        let log = logs.find_one(doc! {"_id": "server"}).await.unwrap().unwrap();
        assert_eq!(log.get_array("events").unwrap().len(), 30);
    });
    assert_proposed(&text.await, "limits: { items: { events:");
}

fn number_of(document: &Document, field: &str) -> i64 {
    document.get_i64(field).or_else(|_| document.get_i32(field).map(i64::from)).unwrap()
}

/// A CRM that reads customers, changes one field and saves the whole document.
async fn crm(database: &Database, counts: bool, checks: bool) {
    let customers = collection(database, "customers");
    let ids: Vec<ObjectId> = (0..3).map(|_| ObjectId::new()).collect();
    for id in &ids {
        customers.insert_one(doc! {"_id": id, "name": "Ada", "visits": 0, "version": 1}).await.unwrap();
    }
    for visit in 1..=4 {
        for id in &ids {
            let mut customer = customers.find_one(doc! {"_id": id}).await.unwrap().unwrap();
            let version = number_of(&customer, "version");
            customer.insert("visits", visit);
            if counts {
                customer.insert("version", version + 1);
            }
            let mut filter = doc! {"_id": id};
            if checks {
                filter.insert("version", version);
            }
            let done = customers.replace_one(filter, customer).await.unwrap();
            assert_eq!(done.matched_count, 1, "visit {visit}");
        }
    }
    for id in &ids {
        let customer = customers.find_one(doc! {"_id": id}).await.unwrap().unwrap();
        assert_eq!(number_of(&customer, "visits"), 4, "{customer}");
        assert!(!counts || number_of(&customer, "version") == 5, "{customer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_counts_its_own_version_is_not_broken() {
    let text = suggested(async |database| crm(database, true, false).await).await;
    assert_not_proposed(&text, "replacement: { policy: check_version", "would meet a version conflict");
    let text = suggested(async |database| crm(database, true, true).await).await;
    assert_not_proposed(&text, "replacement: { policy: check_version", "");
    let text = suggested(async |database| crm(database, false, false).await).await;
    assert_proposed(&text, "replacement: { policy: check_version, version: version }");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_that_removes_fields_is_not_broken() {
    let text = suggested(async |database| {
        let drafts = collection(database, "drafts");
        for id in 0..3 {
            drafts.insert_one(doc! {"_id": id, "text": "…", "reviewer": "Ada"}).await.unwrap();
            let mut draft = drafts.find_one(doc! {"_id": id}).await.unwrap().unwrap();
            draft.remove("reviewer");
            drafts.replace_one(doc! {"_id": id}, draft).await.unwrap();
        }
        assert_eq!(drafts.count_documents(doc! {"reviewer": {"$exists": true}}).await.unwrap(), 0);
    });
    assert_not_proposed(&text.await, "replacement", "3 of 3 replacements remove a field ('reviewer')");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_below_zero_is_not_broken() {
    let text = suggested(async |database| {
        let accounts = collection(database, "accounts");
        accounts.insert_one(doc! {"_id": 1, "balance": 2}).await.unwrap();
        for _ in 0..5 {
            let done = accounts.update_one(doc! {"_id": 1}, doc! {"$inc": {"balance": -1}}).await.unwrap();
            assert_eq!(done.matched_count, 1);
        }
    });
    assert_not_proposed(&text.await, "bounds", "3 of 5 statements would change nothing");
    let text = suggested(async |database| {
        let accounts = collection(database, "accounts");
        accounts.insert_one(doc! {"_id": 1, "balance": 20.5}).await.unwrap();
        for amount in [-10.25, 5.0, -7.5, -9.75, 12.5, -20.0, 30.0, -1.25, -9.0, -15.5] {
            let done = accounts.update_one(doc! {"_id": 1}, doc! {"$inc": {"balance": amount}}).await.unwrap();
            assert_eq!(done.matched_count, 1);
        }
    });
    assert_not_proposed(&text.await, "bounds", "3 of 7 statements would change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_of_the_last_update_is_no_reason_for_a_rule() {
    let text = suggested(async |database| {
        let users = collection(database, "users");
        users.insert_one(doc! {"_id": 1, "name": "Ada", "updated_at": DateTime::now()}).await.unwrap();
        for visit in 0..10 {
            let update = doc! {"$set": {"visit": format!("v{visit}"), "updated_at": DateTime::now()}};
            let done = users.update_one(doc! {"_id": 1}, update).await.unwrap();
            assert_eq!(done.modified_count, 1);
        }
    });
    let text = text.await;
    assert!(text.contains("No rule proposed: the traffic gives no reason for one."), "{text}");
}
