//! A stopped worker wakes up after another process has its lease.

use super::*;

const DOCUMENTS: i32 = 20;
const TAKEOVERS: usize = 5;

/// Waits until the process has become the worker this many times.
fn wait_until_it_works(docward: &Docward, times: usize) {
    let count = || docward.log().iter().filter(|line| line.contains(WORKS)).count();
    assert!(poll(WITHIN, || (count() >= times).then_some(())).is_some(), "{:?}", docward.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_wakes_up_without_its_lease_stores_nothing_wrong() {
    let mongod = Mongod::shared();
    let direct = mongod.client().await.database(&mongod.fresh_database());
    let name = direct.name().to_owned();
    let first = start(mongod, &name, "1000000");
    let second = Docward::start(mongod, &rule(&name, "enforce", "1000000"));
    let done = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (orders, done) = (orders(&direct), done.clone());
        async move {
            let documents = (0..DOCUMENTS).map(|id| doc! {"_id": id, "n": 1});
            orders.insert_many(documents).await.unwrap();
            let mut n = 1;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                orders.update_many(doc! {}, doc! {"$set": {"n": n}}).await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            n
        }
    });
    let mut both = [(first, 1), (second, 0)];
    for _ in 0..TAKEOVERS {
        let [(worker, _), (other, times)] = &mut both;
        // It still stores the changes of the time without a worker.
        tokio::time::sleep(Duration::from_millis(200)).await;
        worker.signal("STOP");
        *times += 1;
        wait_until_it_works(other, *times);
        // The other one has stored changes that the stopped one has read, or was storing.
        tokio::time::sleep(Duration::from_millis(200)).await;
        worker.signal("CONT");
        tokio::time::sleep(Duration::from_millis(200)).await;
        both.reverse();
    }
    done.store(true, Ordering::Relaxed);
    let changes = i64::from(writer.await.unwrap());
    let count = usize::try_from(changes * i64::from(DOCUMENTS)).unwrap();
    expect_entries(&direct, count).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut by_document: BTreeMap<i32, Vec<Document>> = BTreeMap::new();
    for entry in entries(&direct).await {
        let of = entry.get_document("_id").unwrap().get_i32("of").unwrap();
        by_document.entry(of).or_default().push(entry);
    }
    assert_eq!(by_document.len(), usize::try_from(DOCUMENTS).unwrap());
    for (of, mut entries) in by_document {
        entries.sort_by_key(|entry| short(std::slice::from_ref(entry))[0].0);
        let found = short(&entries);
        let state = |state: Option<&Document>| state.map(|state| i64::from(state.get_i32("n").unwrap()));
        let found: Vec<_> = found.into_iter().map(|(revision, _, before)| (revision, state(before))).collect();
        let expected: Vec<_> = (1..=changes).map(|n| (n, (n > 1).then_some(n - 1))).collect();
        assert_eq!(found, expected, "{of}");
    }
    assert_eq!(markers(&direct).await.len(), 1, "no gap");
    println!("{count} changes, {TAKEOVERS} takeovers");
}
