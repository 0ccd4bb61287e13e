import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.bson.Document;

/**
 * Inserts, reads and commits transactions until standard input ends; the driver may retry all of it. Counts the
 * operations, so that the stored documents show lost and duplicate ones.
 */
final class Load {
    private static final int WORKERS = 4; // of each kind
    private static final int ERRORS_KEPT = 5;

    private final ConcurrentLinkedQueue<String> failures = new ConcurrentLinkedQueue<>();
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean stopped;

    private Load() {}

    static void run(String uri, String database) throws Exception {
        try (MongoClient client = MongoClients.create(uri)) {
            new Load().work(client, client.getDatabase(database));
        }
    }

    private void work(MongoClient client, MongoDatabase db) throws Exception {
        db.createCollection("inserted");
        db.createCollection("committed");
        MongoCollection<Document> inserted = db.getCollection("inserted");
        MongoCollection<Document> committed = db.getCollection("committed");
        AtomicLong inserts = repeat(() -> inserted.insertOne(Scenario.doc("n", 1)));
        AtomicLong reads = repeat(() -> inserted.find().limit(10).batchSize(3).into(new ArrayList<>()));
        AtomicLong commits = repeat(() -> {
            try (ClientSession session = client.startSession()) {
                session.withTransaction(() -> {
                    committed.insertOne(session, Scenario.doc("part", 1));
                    return committed.insertOne(session, Scenario.doc("part", 2));
                });
            }
        });
        while (inserts.get() == 0 || reads.get() == 0 || commits.get() == 0) Thread.sleep(10);
        Scenario.emit(Scenario.doc("working", true));
        System.in.readAllBytes();
        stopped = true;
        for (Thread thread : threads) thread.join();
        Scenario.emit(Scenario.doc("failures", failures.stream().limit(ERRORS_KEPT).toList(),
                "failed", failures.size(), "inserted", inserts.get(),
                "committed", commits.get(), "read", reads.get(),
                "stored", List.of(inserted.countDocuments(), committed.countDocuments())));
    }

    private AtomicLong repeat(Runnable work) {
        AtomicLong done = new AtomicLong();
        for (int i = 0; i < WORKERS; i++) {
            Thread thread = new Thread(() -> {
                while (!stopped) {
                    try {
                        work.run();
                        done.incrementAndGet();
                    } catch (RuntimeException error) {
                        failures.add(error.toString());
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        return done;
    }
}
