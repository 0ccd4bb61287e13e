import com.mongodb.ClientSessionOptions;
import com.mongodb.ReadConcern;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.changestream.FullDocument;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.conversions.Bson;

/** Retries, transactions, sessions, change streams. */
final class SessionSteps {
    private static final List<Bson> INSERTS = List.of(Aggregates.match(Filters.eq("operationType", "insert")));
    private static final long AWAITED = 100; // ms

    private SessionSteps() {}

    static Map<String, Scenario.Step> steps() {
        Map<String, Scenario.Step> steps = new LinkedHashMap<>();
        steps.put("retried_write_and_read", SessionSteps::retriedWriteAndRead);
        steps.put("write_that_fails_twice", SessionSteps::writeThatFailsTwice);
        steps.put("with_transaction", SessionSteps::withTransaction);
        steps.put("with_transaction_begun_again", SessionSteps::withTransactionBegunAgain);
        steps.put("commit_whose_reply_is_lost", SessionSteps::commitWhoseReplyIsLost);
        steps.put("aborted_transaction", SessionSteps::abortedTransaction);
        steps.put("error_in_a_transaction", SessionSteps::errorInATransaction);
        steps.put("write_conflict", SessionSteps::writeConflict);
        steps.put("causal_and_snapshot_sessions", SessionSteps::causalAndSnapshotSessions);
        steps.put("change_stream_of_a_collection", SessionSteps::changeStreamOfACollection);
        steps.put("change_stream_resumed", SessionSteps::changeStreamResumed);
        steps.put("change_stream_of_the_cluster", SessionSteps::changeStreamOfTheCluster);
        return steps;
    }

    private static Object retriedWriteAndRead(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        scenario.failNext(1, "insert", "closeConnection", true);
        Object inserted = collection.insertOne(Scenario.doc("_id", "again"));
        scenario.failNext(1, "find", "closeConnection", true);
        return Scenario.list(inserted, Scenario.contents(collection));
    }

    private static Object writeThatFailsTwice(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        scenario.failNext(2, "update", "errorCode", 91, "errorLabels", List.of("RetryableWriteError"));
        return collection.updateOne(Filters.eq(1), Updates.inc("age", 1));
    }

    private static Object withTransaction(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        try (ClientSession inside = scenario.client.startSession()) {
            Object result = inside.withTransaction(() -> {
                collection.insertOne(inside, Scenario.doc("_id", "new"));
                collection.updateOne(inside, Filters.eq(1), Updates.set("age", 0));
                return Scenario.list(collection.countDocuments(inside), collection.countDocuments());
            });
            return Scenario.list(result, Scenario.contents(collection));
        }
    }

    private static Object withTransactionBegunAgain(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        List<Object> attempts = new ArrayList<>();
        scenario.failNext(1, "commitTransaction", "errorCode", 251, "errorLabels", List.of("TransientTransactionError"));
        try (ClientSession inside = scenario.client.startSession()) {
            inside.withTransaction(() -> attempts.add(collection.updateOne(inside, Filters.eq(1), Updates.inc("age", 1))));
        }
        return Scenario.list(attempts, collection.find(Filters.eq(1)).first());
    }

    private static Object commitWhoseReplyIsLost(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        scenario.failNext(1, "commitTransaction", "closeConnection", true);
        try (ClientSession inside = scenario.client.startSession()) {
            inside.withTransaction(() -> collection.deleteOne(inside, Filters.eq(1)));
        }
        return Scenario.contents(collection);
    }

    private static Object abortedTransaction(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        try (ClientSession inside = scenario.client.startSession()) {
            inside.startTransaction();
            collection.deleteMany(inside, new Document());
            inside.abortTransaction();
        }
        return Scenario.contents(collection);
    }

    private static Object errorInATransaction(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        List<Object> seen = new ArrayList<>();
        try (ClientSession inside = scenario.client.startSession()) {
            inside.startTransaction();
            seen.add(Scenario.caught(() -> collection.insertOne(inside, Scenario.doc("_id", 1))));
            seen.add(Scenario.caught(() -> collection.insertOne(inside, Scenario.doc("_id", 30))));
        }
        seen.add(collection.countDocuments());
        return seen;
    }

    private static Object writeConflict(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        try (ClientSession first = scenario.client.startSession(); ClientSession second = scenario.client.startSession()) {
            first.startTransaction();
            second.startTransaction();
            collection.updateOne(first, Filters.eq(1), Updates.set("by", 1));
            Object conflict = Scenario.caught(() -> collection.updateOne(second, Filters.eq(1), Updates.set("by", 2)));
            first.commitTransaction();
            return Scenario.list(conflict, collection.find(Filters.eq(1)).first());
        }
    }

    private static Object causalAndSnapshotSessions(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        MongoCollection<Document> majority = collection.withReadConcern(ReadConcern.MAJORITY).withWriteConcern(WriteConcern.MAJORITY);
        List<Object> seen = new ArrayList<>();
        try (ClientSession causal = scenario.client.startSession(ClientSessionOptions.builder().causallyConsistent(true).build())) {
            majority.insertOne(causal, Scenario.doc("_id", 40));
            seen.add(majority.find(causal, Filters.eq(40)).first());
        }
        try (ClientSession snapshot = scenario.client.startSession(ClientSessionOptions.builder().snapshot(true).build())) {
            seen.add(collection.countDocuments(snapshot));
            collection.deleteMany(new Document());
            seen.add(collection.countDocuments(snapshot));
        }
        return seen;
    }

    private static Object changeStreamOfACollection(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(2);
        try (MongoCursor<BsonDocument> stream = collection.watch().fullDocument(FullDocument.UPDATE_LOOKUP)
                .maxAwaitTime(AWAITED, TimeUnit.MILLISECONDS).withDocumentClass(BsonDocument.class).iterator()) {
            collection.insertOne(Scenario.doc("_id", 10));
            collection.updateOne(Filters.eq(1), Updates.set("name", "Ada"));
            collection.replaceOne(Filters.eq(0), Scenario.doc("new", true));
            collection.deleteOne(Filters.eq(0));
            collection.drop();
            return Scenario.list(take(stream, 6), Scenario.caught(stream::tryNext));
        }
    }

    private static Object changeStreamResumed(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(1);
        List<BsonDocument> changes;
        try (MongoCursor<BsonDocument> stream = scenario.db.watch(INSERTS).maxAwaitTime(AWAITED, TimeUnit.MILLISECONDS)
                .withDocumentClass(BsonDocument.class).iterator()) {
            collection.insertMany(List.of(Scenario.doc("_id", 1), Scenario.doc("_id", 2), Scenario.doc("_id", 3)));
            changes = take(stream, 1);
        }
        try (MongoCursor<BsonDocument> stream = scenario.db.watch(INSERTS).maxAwaitTime(AWAITED, TimeUnit.MILLISECONDS)
                .resumeAfter(changes.get(0).getDocument("_id")).batchSize(1).withDocumentClass(BsonDocument.class).iterator()) {
            scenario.failNext(1, "getMore", "closeConnection", true);
            return Scenario.list(changes, take(stream, 2));
        }
    }

    private static Object changeStreamOfTheCluster(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(1);
        List<Bson> ours = List.of(Aggregates.match(Filters.eq("ns.db", scenario.db.getName())));
        try (MongoCursor<BsonDocument> stream = scenario.client.watch(ours).maxAwaitTime(AWAITED, TimeUnit.MILLISECONDS)
                .withDocumentClass(BsonDocument.class).iterator()) {
            collection.insertMany(List.of(Scenario.doc("_id", 1), Scenario.doc("_id", 2)));
            return take(stream, 2);
        }
    }

    private static List<BsonDocument> take(MongoCursor<BsonDocument> stream, int count) {
        List<BsonDocument> changes = new ArrayList<>();
        while (changes.size() < count) changes.add(stream.next());
        return changes;
    }
}
