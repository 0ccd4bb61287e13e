import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.ValidationOptions;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.bson.Document;

/**
 * Uses the rules of tests/python/compiled_drivers.py: `orders` rejects replacements, `devices` has timestamps,
 * `books` has a bound. `checked` has a validator on the server that rejects the same as the rule of `orders`.
 */
final class RuleSteps {
    private RuleSteps() {}

    static Map<String, Session.Step> steps() {
        Map<String, Session.Step> steps = new LinkedHashMap<>();
        steps.put("rejected", session -> rejected(session, "orders"));
        steps.put("rejected_by_the_server", RuleSteps::rejectedByTheServer);
        steps.put("rejected_without_acknowledgement", RuleSteps::rejectedWithoutAcknowledgement);
        steps.put("timestamps", RuleSteps::timestamps);
        steps.put("bounds", RuleSteps::bounds);
        return steps;
    }

    private static Object rejectedByTheServer(Session session) {
        ValidationOptions validator = new ValidationOptions().validator(Filters.exists("replaced", false));
        session.db.createCollection("checked", new CreateCollectionOptions().validationOptions(validator));
        return rejected(session, "checked");
    }

    private static Document rejected(Session session, String name) {
        MongoCollection<Document> orders = session.db.getCollection(name);
        Document whole = Session.doc("replaced", true);
        orders.insertOne(Session.doc("_id", 1));
        List<Object> attempts = new ArrayList<>();
        Object transaction;
        try (ClientSession inside = session.client.startSession()) {
            transaction = Session.caught(() -> inside.withTransaction(() -> {
                attempts.add(1);
                orders.insertOne(inside, Session.doc("_id", "lost"));
                return orders.replaceOne(inside, Filters.eq(1), whole);
            }));
        }
        return Session.doc(
                "single", Session.caught(() -> orders.replaceOne(Filters.eq(1), whole)),
                "found", Session.caught(() -> orders.findOneAndReplace(Filters.eq(1), whole)),
                "ordered", bulk(orders, whole, "a", true),
                "unordered", bulk(orders, whole, "b", false),
                "attempts", attempts.size(),
                "transaction", transaction,
                "lost", orders.countDocuments(Filters.eq("lost")));
    }

    private static Object bulk(MongoCollection<Document> orders, Document whole, String id, boolean ordered) {
        return Session.caught(() -> orders.bulkWrite(List.of(
                new InsertOneModel<>(Session.doc("_id", id)),
                new ReplaceOneModel<>(Filters.eq(1), whole),
                new UpdateOneModel<>(Filters.eq(1), Updates.inc("n", 1))), new BulkWriteOptions().ordered(ordered)));
    }

    private static Object rejectedWithoutAcknowledgement(Session session) {
        MongoCollection<Document> orders = session.db.getCollection("orders");
        orders.insertOne(Session.doc("_id", 1));
        Object replaced = orders.withWriteConcern(WriteConcern.UNACKNOWLEDGED)
                .replaceOne(Filters.eq(1), Session.doc("replaced", true)).wasAcknowledged();
        return Session.list(replaced, Session.contents(orders));
    }

    private static Object timestamps(Session session) {
        MongoCollection<Document> devices = session.db.getCollection("devices");
        List<Object> seen = new ArrayList<>();
        for (int second : new int[] {2, 3, 1}) {
            Document update = Session.doc("$set", Session.doc("level", second, "at", new Date(second * 1000L)));
            seen.add(devices.updateOne(Filters.eq(1), update, new UpdateOptions().upsert(true)));
        }
        seen.add(Session.contents(devices));
        return seen;
    }

    private static Object bounds(Session session) {
        MongoCollection<Document> books = session.db.getCollection("books");
        books.insertOne(Session.doc("_id", 1, "available", 1));
        return Session.list(books.updateOne(Filters.eq(1), Updates.inc("available", -1)),
                books.updateOne(Filters.eq(1), Updates.inc("available", -1)), Session.contents(books));
    }
}
