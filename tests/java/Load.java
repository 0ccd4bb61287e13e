import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.bson.Document;

/**
 * Inserts, reads and commits transactions until standard input ends; the driver may retry all of it. Counts the
 * operations, so that the stored documents show lost and duplicate ones.
 */
final class Load {
    private static final int WORKERS = 4; // of each kind
    private static final int TEXTS_KEPT = 200;

    private final Map<String, Integer> done = new ConcurrentHashMap<>();
    private final Map<String, Integer> failures = new ConcurrentHashMap<>();
    private final Map<String, Double> longest = new ConcurrentHashMap<>(); // seconds
    private final ConcurrentLinkedQueue<String> texts = new ConcurrentLinkedQueue<>();
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
        repeat("insert", () -> inserted.insertOne(Scenario.doc("n", 1)));
        repeat("read", () -> inserted.find().limit(10).batchSize(3).into(new ArrayList<>()));
        repeat("transaction", () -> {
            try (ClientSession session = client.startSession()) {
                session.withTransaction(() -> {
                    committed.insertOne(session, Scenario.doc("part", 1));
                    return committed.insertOne(session, Scenario.doc("part", 2));
                });
            }
        });
        while (done.size() < 3) Thread.sleep(10);
        Scenario.emit(Scenario.doc("working", true));
        System.in.readAllBytes();
        stopped = true;
        for (Thread thread : threads) thread.join();
        Scenario.emit(Scenario.doc("done", done, "failures", failures, "texts", texts.stream().limit(TEXTS_KEPT).toList(),
                "longest", longest, "stored", List.of(inserted.countDocuments(), committed.countDocuments())));
    }

    private void repeat(String name, Runnable work) {
        for (int i = 0; i < WORKERS; i++) {
            Thread thread = new Thread(() -> {
                while (!stopped) {
                    long began = System.nanoTime();
                    try {
                        work.run();
                        done.merge(name, 1, Integer::sum);
                    } catch (RuntimeException error) {
                        failures.merge(name, 1, Integer::sum);
                        texts.add(name + ": " + error);
                    }
                    longest.merge(name, (System.nanoTime() - began) / 1e9, Math::max);
                }
            });
            thread.start();
            threads.add(thread);
        }
    }
}
