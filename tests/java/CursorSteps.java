import com.mongodb.CursorType;
import com.mongodb.ExplainVerbosity;
import com.mongodb.client.FindIterable;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.gridfs.GridFSBucket;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.gridfs.model.GridFSFile;
import com.mongodb.client.gridfs.model.GridFSUploadOptions;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.Sorts;
import com.mongodb.connection.ClusterDescription;
import com.mongodb.connection.ServerDescription;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.types.ObjectId;

/** Results in several replies, files, and the driver's view of the servers. */
final class CursorSteps {
    private static final long HEARTBEAT_TIMEOUT = TimeUnit.SECONDS.toNanos(20);

    private CursorSteps() {}

    static Map<String, Scenario.Step> steps() {
        Map<String, Scenario.Step> steps = new LinkedHashMap<>();
        steps.put("explain", CursorSteps::explain);
        steps.put("large_results", CursorSteps::largeResults);
        steps.put("abandoned_cursors", CursorSteps::abandonedCursors);
        steps.put("tailable_cursor", CursorSteps::tailableCursor);
        steps.put("grid_fs", CursorSteps::gridFs);
        steps.put("two_hundred_at_once", CursorSteps::twoHundredAtOnce);
        steps.put("timeouts", CursorSteps::timeouts);
        steps.put("what_the_driver_knows_of_the_servers", CursorSteps::whatTheDriverKnows);
        return steps;
    }

    private static Object explain(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        collection.createIndex(Indexes.ascending("age"));
        return Scenario.list(
                collection.find(Filters.gt("age", 21)).explain(ExplainVerbosity.QUERY_PLANNER),
                collection.aggregate(List.of(Aggregates.match(Filters.eq("age", 21)))).explain(ExplainVerbosity.QUERY_PLANNER),
                collection.countDocuments());
    }

    private static Object largeResults(Scenario scenario) throws Exception {
        MongoCollection<Document> collection = scenario.db.getCollection("large");
        collection.insertMany(IntStream.range(0, 10_000)
                .mapToObj(i -> Scenario.doc("_id", i, "filler", String.format("%1000d", i))).toList());
        collection.insertOne(Scenario.doc("_id", -1, "text", "x".repeat(16_000_000)));
        FindIterable<BsonDocument> all = collection.find(BsonDocument.class).sort(Sorts.ascending("_id"));
        return Scenario.list(digest(all), digest(all.batchSize(777)), digest(all.skip(5000).limit(2000)));
    }

    private static Object digest(FindIterable<BsonDocument> found) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        int count = 0;
        try (MongoCursor<BsonDocument> cursor = found.iterator()) {
            for (; cursor.hasNext(); count++) digest.update(Recorder.bytes(cursor.next()));
        }
        return Scenario.list(count, HexFormat.of().formatHex(digest.digest()));
    }

    private static Object abandonedCursors(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(50);
        MongoCursor<Document> cursor = collection.find().batchSize(10).sort(Sorts.ascending("_id")).iterator();
        Document first = cursor.next();
        long id = cursor.getServerCursor().getId();
        scenario.db.runCommand(Scenario.doc("killCursors", "people", "cursors", List.of(id)));
        Object killed = Scenario.caught(() -> {
            while (cursor.hasNext()) cursor.next();
            return null;
        });
        MongoCursor<Document> closed = collection.find().batchSize(2).iterator();
        for (int i = 0; i < 3; i++) closed.next();
        closed.close();
        return Scenario.list(first, killed);
    }

    private static Object tailableCursor(Scenario scenario) {
        scenario.db.createCollection("log", new CreateCollectionOptions().capped(true).sizeInBytes(100_000));
        MongoCollection<Document> log = scenario.db.getCollection("log");
        log.insertMany(List.of(Scenario.doc("_id", 1), Scenario.doc("_id", 2)));
        try (MongoCursor<Document> cursor = log.find().cursorType(CursorType.TailableAwait)
                .maxAwaitTime(100, TimeUnit.MILLISECONDS).iterator()) {
            List<Object> seen = Scenario.list(cursor.next(), cursor.next(), cursor.tryNext());
            MongoCollection<Document> unrecorded = scenario.observer.getCollection("log");
            new Thread(() -> unrecorded.insertOne(Scenario.doc("_id", 3))).start();
            seen.add(cursor.next());
            return seen;
        }
    }

    private static Object gridFs(Scenario scenario) {
        GridFSBucket bucket = GridFSBuckets.create(scenario.db, "files");
        // Chunks have generated ids and are too large to print.
        GridFSBucket reading = GridFSBuckets.create(scenario.observer, "files");
        byte[] data = "docward ".repeat(154_320).getBytes();
        GridFSUploadOptions options = new GridFSUploadOptions().chunkSizeBytes(100_000).metadata(Scenario.doc("of", "docward"));
        ObjectId id = bucket.uploadFromStream("data.bin", new ByteArrayInputStream(data), options);
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        reading.downloadToStream(id, whole);
        ByteArrayOutputStream named = new ByteArrayOutputStream();
        reading.downloadToStream("data.bin", named);
        bucket.rename(id, "renamed.bin");
        GridFSFile file = bucket.find().first();
        bucket.delete(id);
        boolean gone = Scenario.caught(() -> bucket.openDownloadStream(id)) instanceof Document;
        return Scenario.list(Arrays.equals(whole.toByteArray(), data), named.size(), file.getFilename(), file.getLength(),
                file.getMetadata(), gone, scenario.db.getCollection("files.chunks").countDocuments());
    }

    private static Object twoHundredAtOnce(Scenario scenario) {
        scenario.people(200);
        MongoCollection<Document> people = scenario.observer.getCollection("people");
        return IntStream.range(0, 200).parallel().mapToObj(i -> people.find(Filters.eq(i)).first()).toList();
    }

    /** A timed-out operation does not affect the next one. Whether server or client ends it depends on timing. */
    private static Object timeouts(Scenario scenario) {
        scenario.people(5);
        MongoCollection<Document> collection = scenario.observer.getCollection("people");
        Object late = Scenario.caught(() -> collection.withTimeout(200, TimeUnit.MILLISECONDS)
                .find(Filters.where("sleep(300) || true")).first());
        return Scenario.list(((Document) late).get("type"), collection.countDocuments());
    }

    /** The driver streams heartbeats: an awaited one is a reply that the server delayed until a change. */
    private static Object whatTheDriverKnows(Scenario scenario) throws InterruptedException {
        long deadline = System.nanoTime() + HEARTBEAT_TIMEOUT;
        while (!scenario.heartbeatWasAwaited() && System.nanoTime() < deadline) Thread.sleep(10);
        ClusterDescription cluster = scenario.client.getClusterDescription();
        List<Object> servers = new ArrayList<>();
        for (ServerDescription server : cluster.getServerDescriptions()) {
            servers.add(Scenario.list(server.getAddress().toString(), server.getType().name(), server.getHosts().toString(),
                    server.getCanonicalAddress(), server.getPrimary(), server.getSetName(), server.getMaxWireVersion(),
                    server.getMaxDocumentSize()));
        }
        return Scenario.list(cluster.getType().name(), servers, scenario.heartbeatWasAwaited());
    }
}
