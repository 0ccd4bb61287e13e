import com.mongodb.MongoNamespace;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.Collation;
import com.mongodb.client.model.CollationStrength;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteManyModel;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexModel;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.MergeOptions;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.TimeSeriesOptions;
import com.mongodb.client.model.UpdateManyModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.model.ValidationOptions;
import com.mongodb.client.model.WriteModel;
import com.mongodb.client.model.bulk.ClientNamespacedWriteModel;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.bson.Document;
import org.bson.types.Decimal128;

/** Writes, queries, collections. */
final class CrudSteps {
    private CrudSteps() {}

    static Map<String, Scenario.Step> steps() {
        Map<String, Scenario.Step> steps = new LinkedHashMap<>();
        steps.put("insert_and_find", CrudSteps::insertAndFind);
        steps.put("update_replace_delete", CrudSteps::updateReplaceDelete);
        steps.put("duplicate_key", scenario -> scenario.people(5).insertOne(Scenario.doc("_id", 1)));
        steps.put("failed_validation", CrudSteps::failedValidation);
        steps.put("ordered_bulk_write", CrudSteps::orderedBulkWrite);
        steps.put("unordered_bulk_write", CrudSteps::unorderedBulkWrite);
        steps.put("bulk_write_of_more_than_one_message", CrudSteps::bulkWriteOfMoreThanOneMessage);
        steps.put("bulk_write_of_the_client", CrudSteps::bulkWriteOfTheClient);
        steps.put("aggregation", CrudSteps::aggregation);
        steps.put("collections_and_indexes", CrudSteps::collectionsAndIndexes);
        steps.put("options_and_errors_of_commands", CrudSteps::optionsAndErrorsOfCommands);
        steps.put("unacknowledged_writes", CrudSteps::unacknowledgedWrites);
        return steps;
    }

    private static Object insertAndFind(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        Document ada = Scenario.doc("_id", "Ada", "born", new Date(0), "notes", null, "big", Long.MAX_VALUE,
                "price", Decimal128.parse("1.50"));
        return Scenario.list(
                collection.insertOne(ada),
                collection.insertOne(Scenario.doc("name", "an id of the driver's")).wasAcknowledged(),
                collection.find(Filters.gt("age", 21)).projection(Projections.include("name"))
                        .sort(Sorts.descending("age")).limit(2).into(new ArrayList<>()),
                collection.find(Filters.eq("_id", 9)).first(),
                collection.countDocuments(Filters.eq("tags", "a")),
                collection.estimatedDocumentCount(),
                collection.distinct("name", Filters.lt("age", 22), String.class).into(new ArrayList<>()));
    }

    private static Object updateReplaceDelete(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        Document doubled = Scenario.doc("$set", Scenario.doc("double", Scenario.doc("$multiply", List.of("$age", 2))));
        return Scenario.list(
                collection.updateOne(Filters.eq(1), Updates.combine(Updates.set("name", "Ada"), Updates.inc("age", 1))),
                collection.updateMany(new Document(), List.of(doubled)),
                collection.updateOne(Filters.eq(7), Updates.setOnInsert("name", "Bob"), new UpdateOptions().upsert(true)),
                collection.updateOne(Filters.eq(0), Updates.set("tags.$[t]", "b"),
                        new UpdateOptions().arrayFilters(List.of(Filters.eq("t", "a")))),
                collection.replaceOne(Filters.eq(2), Scenario.doc("name", "whole")),
                collection.findOneAndUpdate(Filters.eq(3), Updates.push("tags", "x"),
                        new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER)),
                collection.findOneAndReplace(Filters.eq(4), Scenario.doc("name", "other")),
                collection.findOneAndDelete(Filters.eq(0)),
                collection.findOneAndDelete(Filters.eq(0)),
                collection.deleteOne(Filters.eq(1)),
                collection.deleteMany(Filters.gt("age", 22)),
                Scenario.contents(collection));
    }

    private static Object failedValidation(Scenario scenario) {
        ValidationOptions validator = new ValidationOptions().validator(Filters.gte("n", 0));
        scenario.db.createCollection("checked", new CreateCollectionOptions().validationOptions(validator));
        return scenario.db.getCollection("checked").insertOne(Scenario.doc("_id", 1, "n", -1));
    }

    private static Object orderedBulkWrite(Scenario scenario) {
        return scenario.people(5).bulkWrite(List.of(
                new InsertOneModel<>(Scenario.doc("_id", 10)),
                new UpdateOneModel<>(Filters.eq(1), Updates.set("a", 1)),
                new InsertOneModel<>(Scenario.doc("_id", 10)),
                new DeleteManyModel<>(new Document())));
    }

    private static Object unorderedBulkWrite(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        List<WriteModel<Document>> models = List.of(
                new InsertOneModel<>(Scenario.doc("_id", 1)),
                new ReplaceOneModel<>(Filters.eq(20), Scenario.doc("a", 1), new ReplaceOptions().upsert(true)),
                new UpdateManyModel<>(new Document(), Updates.inc("age", 1)),
                new InsertOneModel<>(Scenario.doc("_id", 2)),
                new DeleteOneModel<>(Filters.eq(3)));
        BulkWriteOptions unordered = new BulkWriteOptions().ordered(false);
        return Scenario.list(Scenario.caught(() -> collection.bulkWrite(models, unordered)), Scenario.contents(collection));
    }

    private static Object bulkWriteOfMoreThanOneMessage(Scenario scenario) {
        String filler = "x".repeat(100);
        List<InsertOneModel<Document>> models = IntStream.rangeClosed(0, 100_000)
                .mapToObj(i -> new InsertOneModel<>(Scenario.doc("_id", i, "filler", filler))).toList();
        MongoCollection<Document> collection = scenario.db.getCollection("many");
        return Scenario.list(collection.bulkWrite(models, new BulkWriteOptions().ordered(false)).getInsertedCount(),
                collection.countDocuments());
    }

    private static Object bulkWriteOfTheClient(Scenario scenario) {
        String database = scenario.db.getName();
        return scenario.client.bulkWrite(List.of(
                ClientNamespacedWriteModel.insertOne(new MongoNamespace(database, "people"), Scenario.doc("_id", 1)),
                ClientNamespacedWriteModel.insertOne(new MongoNamespace(database, "others"), Scenario.doc("_id", 2))));
    }

    private static Object aggregation(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        MergeOptions merge = new MergeOptions().whenMatched(MergeOptions.WhenMatched.MERGE);
        List<Document> tags = collection.aggregate(List.of(Aggregates.unwind("$tags"),
                Aggregates.group("$tags", Accumulators.sum("n", 1)), Aggregates.sort(Sorts.ascending("_id"))))
                .into(new ArrayList<>());
        // With $out and $merge the driver reads the output collection.
        List<Document> copied = collection.aggregate(List.of(Aggregates.match(Filters.lt("_id", 2)), Aggregates.out("copy")))
                .into(new ArrayList<>());
        collection.aggregate(List.of(Scenario.doc("$set", Scenario.doc("merged", true)), Aggregates.merge("copy", merge)))
                .toCollection();
        return Scenario.list(tags, copied, Scenario.contents(scenario.db.getCollection("copy")));
    }

    private static Object collectionsAndIndexes(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        scenario.db.createView("views", "people", List.of(Aggregates.project(Projections.include("name"))));
        scenario.db.createCollection("series", new CreateCollectionOptions().timeSeriesOptions(new TimeSeriesOptions("at")));
        scenario.db.getCollection("series").insertOne(Scenario.doc("_id", 1, "at", new Date(0), "n", 1));
        List<String> names = collection.createIndexes(List.of(
                new IndexModel(Indexes.ascending("name"), new IndexOptions().unique(true)),
                new IndexModel(Indexes.descending("age"), new IndexOptions().name("by age"))));
        List<Document> indexes = collection.listIndexes().into(new ArrayList<>());
        collection.dropIndex("by age");
        int collections = scenario.db.listCollectionNames().into(new ArrayList<>()).size();
        MongoNamespace renamed = new MongoNamespace(scenario.db.getName(), "persons");
        collection.renameCollection(renamed);
        return Scenario.list(names, indexes, collections, scenario.db.getCollection("series").countDocuments(),
                scenario.db.getCollection("persons").countDocuments());
    }

    private static Object optionsAndErrorsOfCommands(Scenario scenario) {
        MongoCollection<Document> collection = scenario.people(5);
        scenario.failNext(1, "find", "errorCode", 50);
        Scenario.Step find = all -> collection.find(Filters.eq("name", "NAME1"))
                .collation(Collation.builder().locale("en").collationStrength(CollationStrength.SECONDARY).build())
                .comment("a comment").hint(Indexes.ascending("_id")).into(new ArrayList<>());
        return Scenario.list(
                Scenario.caught(() -> find.run(scenario)),
                Scenario.caught(() -> find.run(scenario)),
                Scenario.caught(() -> collection.find(Scenario.doc("$bad", 1)).first()),
                Scenario.caught(() -> collection.updateOne(Filters.eq(1), Updates.set("_id", 2))),
                Scenario.caught(() -> collection.withWriteConcern(new WriteConcern("no such tag")).insertOne(Scenario.doc("_id", 70))),
                Scenario.caught(() -> scenario.db.runCommand(Scenario.doc("noSuchCommand", 1))),
                Scenario.caught(() -> scenario.db.runCommand(Scenario.doc("ping", 1, "comment", "as it is"))));
    }

    private static Object unacknowledgedWrites(Scenario scenario) throws InterruptedException {
        MongoCollection<Document> collection = scenario.people(5).withWriteConcern(WriteConcern.UNACKNOWLEDGED);
        List<Object> results = Scenario.list(
                collection.insertOne(Scenario.doc("_id", 1)), // an unacknowledged duplicate
                collection.insertMany(List.of(Scenario.doc("_id", 50), Scenario.doc("_id", 51))),
                collection.updateMany(new Document(), Updates.set("seen", true)),
                collection.deleteOne(Filters.eq(0)),
                collection.bulkWrite(List.of(new InsertOneModel<>(Scenario.doc("_id", 60)), new DeleteOneModel<>(Filters.eq(2)))));
        // They may use several connections and arrive in any order.
        List<Integer> expected = List.of(1, 3, 4, 50, 51, 60);
        MongoCollection<Document> stored = scenario.observer.getCollection("people");
        while (!stored.distinct("_id", Integer.class).into(new ArrayList<>()).equals(expected)) Thread.sleep(10);
        return results;
    }
}
