//! `docward suggest` on the recorded traffic of naive applications: it finds what is wrong with them, and its rules,
//! enforced, do not break them.

use bson::{DateTime, Document, doc};
use mongodb::{Client, Collection, Database};
use support::mongod::{Kind, Mongod};
use support::process::docward;
use support::proxy::Docward;

type Outcome = mongodb::error::Result<()>;

/// All applications, one after the other, each with its name.
async fn applications(address: &str) {
    let uri = |app: &str| format!("mongodb://{address}/?directConnection=true&appName={app}");
    let database = async |app: &str| Client::with_uri_str(uri(app)).await.unwrap().database("shop");
    invoices(database("invoices").await).await.unwrap();
    visits(database("visits").await).await.unwrap();
    jobs(database("jobs").await).await.unwrap();
    categories(database("categories").await).await.unwrap();
    books(database("books").await).await.unwrap();
    posts(database("posts").await).await.unwrap();
    customers(database("crm").await).await.unwrap();
    checked_customers(database("checked").await).await.unwrap();
    profiles(database("profiles").await).await.unwrap();
    stock(database("stock").await).await.unwrap();
}

fn collection(database: &Database, name: &str) -> Collection<Document> {
    database.collection(name)
}

/// A number of either width: docward chooses the one of a sequence.
fn number(document: &Document, field: &str) -> i64 {
    document.get_i64(field).unwrap_or_else(|_| document.get_i32(field).unwrap().into())
}

/// The largest number plus one.
async fn invoices(database: Database) -> Outcome {
    let invoices = collection(&database, "invoices");
    for _ in 0..6 {
        let last = invoices.find_one(doc! {}).sort(doc! {"no": -1}).await?;
        let no = last.map_or(1, |last| number(&last, "no") + 1);
        let id = invoices.insert_one(doc! {"no": no, "total": 5}).await?.inserted_id;
        let stored = invoices.find_one(doc! {"_id": id}).await?.unwrap();
        assert_eq!(stored.get_i32("total").unwrap(), 5);
        assert_eq!(number(&stored, "no"), no);
    }
    Ok(())
}

/// Read, computed, set.
async fn visits(database: Database) -> Outcome {
    let pages = collection(&database, "pages");
    pages.insert_one(doc! {"_id": "home", "visits": 0}).await?;
    for expected in 0..6 {
        let visits = pages.find_one(doc! {"_id": "home"}).await?.unwrap().get_i32("visits").unwrap();
        assert_eq!(visits, expected);
        pages.update_one(doc! {"_id": "home"}, doc! {"$set": {"visits": visits + 1}}).await?;
    }
    Ok(())
}

/// Completes jobs by `_id` alone.
async fn jobs(database: Database) -> Outcome {
    let jobs = collection(&database, "jobs");
    for id in 0..5 {
        jobs.insert_one(doc! {"_id": id, "state": "new"}).await?;
    }
    for _ in 0..5 {
        let claim = doc! {"$set": {"state": "taken", "at": DateTime::now()}};
        let job = jobs.find_one_and_update(doc! {"state": "new"}, claim).await?.unwrap();
        let id = job.get_i32("_id").unwrap();
        let done = jobs.update_one(doc! {"_id": id}, doc! {"$set": {"state": "done"}}).await?;
        assert_eq!(done.matched_count, 1);
    }
    Ok(())
}

/// Computes the paths of ancestors.
async fn categories(database: Database) -> Outcome {
    let categories = collection(&database, "categories");
    categories.insert_one(doc! {"_id": "Books", "parent": null, "path": null}).await?;
    for (id, parent) in [("Programming", "Books"), ("Databases", "Programming"), ("MongoDB", "Databases")] {
        let above = categories.find_one(doc! {"_id": parent}).await?.unwrap();
        let path = format!("{}{parent},", above.get_str("path").unwrap_or(","));
        categories.insert_one(doc! {"_id": id, "parent": parent, "path": &path}).await?;
        assert_eq!(categories.find_one(doc! {"_id": id}).await?.unwrap().get_str("path").unwrap(), path);
    }
    Ok(())
}

/// Copies the names of authors.
async fn books(database: Database) -> Outcome {
    let (authors, books) = (collection(&database, "authors"), collection(&database, "books"));
    for (id, name) in ["Ada", "Bertha", "Carl"].into_iter().enumerate() {
        authors.insert_one(doc! {"_id": id as i64 + 100, "name": name}).await?;
    }
    for book in 0..6 {
        let author = authors.find_one(doc! {"_id": 100 + book % 3}).await?.unwrap();
        let name = author.get_str("name").unwrap();
        books.insert_one(doc! {"_id": book, "author_id": author.get_i64("_id").unwrap(), "author": name}).await?;
    }
    Ok(())
}

/// An array that only grows.
async fn posts(database: Database) -> Outcome {
    let posts = collection(&database, "posts");
    posts.insert_one(doc! {"_id": 1, "title": "a post"}).await?;
    for n in 0..25 {
        posts.update_one(doc! {"_id": 1}, doc! {"$push": {"comments": {"n": n}}}).await?;
    }
    let stored = posts.find_one(doc! {"_id": 1}).await?.unwrap();
    assert_eq!(stored.get_array("comments").unwrap().len(), 25);
    Ok(())
}

/// Counts its own versions up and does not check them.
async fn customers(database: Database) -> Outcome {
    save_customers(&collection(&database, "customers"), |_| Document::new()).await
}

/// Counts its own versions up and checks them.
async fn checked_customers(database: Database) -> Outcome {
    save_customers(&collection(&database, "checked"), |version| doc! {"version": version}).await
}

async fn save_customers(customers: &Collection<Document>, condition: impl Fn(i32) -> Document) -> Outcome {
    customers.insert_one(doc! {"_id": 1, "name": "Ada", "version": 1}).await?;
    for _ in 0..8 {
        let mut customer = customers.find_one(doc! {"_id": 1}).await?.unwrap();
        let version = customer.get_i32("version").unwrap();
        let mut filter = condition(version);
        filter.insert("_id", 1);
        customer.insert("version", version + 1);
        assert_eq!(customers.replace_one(filter, customer).await?.matched_count, 1);
    }
    let stored = customers.find_one(doc! {"_id": 1}).await?.unwrap();
    assert_eq!(stored.get_i32("version").unwrap(), 9);
    Ok(())
}

/// Sets the time of each change, in order.
async fn profiles(database: Database) -> Outcome {
    let profiles = collection(&database, "profiles");
    profiles.insert_one(doc! {"_id": 1}).await?;
    for n in 0..10 {
        let set = doc! {"$set": {"n": n, "updated_at": DateTime::now()}};
        assert_eq!(profiles.update_one(doc! {"_id": 1}, set).await?.modified_count, 1);
    }
    Ok(())
}

/// Sells what it has.
async fn stock(database: Database) -> Outcome {
    let stock = collection(&database, "stock");
    stock.insert_one(doc! {"_id": 1, "left": 10}).await?;
    for _ in 0..10 {
        let sold = stock.update_one(doc! {"_id": 1}, doc! {"$inc": {"left": -1}}).await?;
        assert_eq!(sold.matched_count, 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn proposed_rules_find_what_is_wrong_and_break_no_application() {
    let mongod = Mongod::start(Kind::ReplicaSet);
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("traffic.bson");
    let recorder = Docward::before(&mongod.uri()).subcommand("record").argument(capture.to_str().unwrap());
    let mut recorder = recorder.start();
    applications(&recorder.address()).await;
    assert!(recorder.terminate().success());

    let stream = docward(&["suggest", "/dev/null"]);
    let error = String::from_utf8(stream.stderr).unwrap();
    assert!(stream.status.code() == Some(1) && error.contains("/dev/null is not a file"), "{error}");
    let done = docward(&["suggest", capture.to_str().unwrap()]);
    let text = String::from_utf8(done.stdout).unwrap();
    for rule in [
        "namespace: shop.invoices\n    mode: shadow\n    sequence: { field: no, counter: invoices_no, start: after_max, provided: replace }",
        "namespace: shop.categories\n    mode: shadow\n    tree: { path: path, parent: parent, separator: \",\" }",
        "namespace: shop.authors\n    mode: shadow\n    copies: [{ into: shop.books, key: author_id, fields: { name: author } }]",
        "namespace: shop.posts\n    mode: shadow\n    limits: { items: { comments: 1000 } }",
        "namespace: shop.stock\n    mode: shadow\n    bounds: { field: left, min: 0 }",
        "namespace: shop.customers\n    mode: shadow\n    replacement: { policy: merge }",
        "# Not proposed: replacement on shop.customers, because 8 of 8 statements would meet a version conflict",
        "# Not proposed: queue on shop.jobs, because it would reject",
        "Change the application to $inc.",
    ] {
        assert!(text.contains(rule), "{rule}\nis not in\n{text}");
    }
    for noise in ["timestamps:", "shop.checked", "deny:"] {
        assert!(!text.contains(noise), "{noise} is in\n{text}");
    }

    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, text.replace("    mode: shadow\n", "")).unwrap();
    let checked = docward(&["check", file.to_str().unwrap()]);
    assert!(checked.status.success(), "{text}\n{}", String::from_utf8_lossy(&checked.stderr));
    mongod.command("shop", doc! {"dropDatabase": 1});
    let enforced = Docward::before(&mongod.uri()).rules_path(&file).start();
    applications(&enforced.address()).await;
}
