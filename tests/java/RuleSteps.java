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

    static Map<String, Scenario.Step> steps() {
        Map<String, Scenario.Step> steps = new LinkedHashMap<>();
        steps.put("rejected", scenario -> rejected(scenario, "orders"));
        steps.put("rejected_by_the_server", RuleSteps::rejectedByTheServer);
        steps.put("rejected_without_acknowledgement", RuleSteps::rejectedWithoutAcknowledgement);
        steps.put("timestamps", RuleSteps::timestamps);
        steps.put("bounds", RuleSteps::bounds);
        return steps;
    }

    private static Object rejectedByTheServer(Scenario scenario) {
        ValidationOptions validator = new ValidationOptions().validator(Filters.exists("replaced", false));
        scenario.db.createCollection("checked", new CreateCollectionOptions().validationOptions(validator));
        return rejected(scenario, "checked");
    }

    private static Document rejected(Scenario scenario, String name) {
        MongoCollection<Document> orders = scenario.db.getCollection(name);
        Document whole = Scenario.doc("replaced", true);
        orders.insertOne(Scenario.doc("_id", 1));
        List<Object> attempts = new ArrayList<>();
        Object transaction;
        try (ClientSession inside = scenario.client.startSession()) {
            transaction = Scenario.caught(() -> inside.withTransaction(() -> {
                attempts.add(1);
                orders.insertOne(inside, Scenario.doc("_id", "lost"));
                return orders.replaceOne(inside, Filters.eq(1), whole);
            }));
        }
        return Scenario.doc(
                "single", Scenario.caught(() -> orders.replaceOne(Filters.eq(1), whole)),
                "found", Scenario.caught(() -> orders.findOneAndReplace(Filters.eq(1), whole)),
                "ordered", bulk(orders, whole, "a", true),
                "unordered", bulk(orders, whole, "b", false),
                "attempts", attempts.size(),
                "transaction", transaction,
                "lost", orders.countDocuments(Filters.eq("lost")));
    }

    private static Object bulk(MongoCollection<Document> orders, Document whole, String id, boolean ordered) {
        return Scenario.caught(() -> orders.bulkWrite(List.of(
                new InsertOneModel<>(Scenario.doc("_id", id)),
                new ReplaceOneModel<>(Filters.eq(1), whole),
                new UpdateOneModel<>(Filters.eq(1), Updates.inc("n", 1))), new BulkWriteOptions().ordered(ordered)));
    }

    private static Object rejectedWithoutAcknowledgement(Scenario scenario) {
        MongoCollection<Document> orders = scenario.db.getCollection("orders");
        orders.insertOne(Scenario.doc("_id", 1));
        Object replaced = orders.withWriteConcern(WriteConcern.UNACKNOWLEDGED)
                .replaceOne(Filters.eq(1), Scenario.doc("replaced", true)).wasAcknowledged();
        return Scenario.list(replaced, Scenario.contents(orders));
    }

    private static Object timestamps(Scenario scenario) {
        MongoCollection<Document> devices = scenario.db.getCollection("devices");
        List<Object> seen = new ArrayList<>();
        for (int second : new int[] {2, 3, 1}) {
            Document update = Scenario.doc("$set", Scenario.doc("level", second, "at", new Date(second * 1000L)));
            seen.add(devices.updateOne(Filters.eq(1), update, new UpdateOptions().upsert(true)));
        }
        seen.add(Scenario.contents(devices));
        return seen;
    }

    private static Object bounds(Scenario scenario) {
        MongoCollection<Document> books = scenario.db.getCollection("books");
        books.insertOne(Scenario.doc("_id", 1, "available", 1));
        return Scenario.list(books.updateOne(Filters.eq(1), Updates.inc("available", -1)),
                books.updateOne(Filters.eq(1), Updates.inc("available", -1)), Scenario.contents(books));
    }
}
