import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Updates;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.bson.Document;

/**
 * The common part of the ODM programs: the same steps for each model, with one line of Extended JSON per step. The
 * other application in the steps is the driver itself, on the same connection string.
 */
final class Scenario {
    private static final int INCREMENTS = 50;

    private final MongoDatabase database;
    private final MongoCollection<Document> collection;
    private final Model model;

    private Scenario(MongoDatabase database, Model model) {
        this.database = database;
        this.collection = database.getCollection(model.collection());
        this.model = model;
    }

    /** The ODM's implementation of the steps' operations. */
    interface Model {
        String name();

        String collection();

        /** An entity that is not stored; without a key the ODM generates one. */
        Entity make(String key, String name, int qty, String note);

        Entity read(String key);

        Entity save(Entity entity);

        void remove(Entity entity);
    }

    interface Entity {
        Object key();

        void setQty(int qty);

        void setNote(String note);
    }

    /** A step returns the key of its document. */
    private interface Step {
        Object run(String key);
    }

    /** The arguments are the connection string, the database's name, and `race` for the steps whose output differs from run to run. */
    static void run(List<String> arguments, Iterable<Model> models) {
        try (MongoClient client = MongoClients.create(arguments.get(0))) {
            for (Model model : models) {
                Scenario scenario = new Scenario(client.getDatabase(arguments.get(1)), model);
                Map<String, Step> steps = scenario.steps();
                if (arguments.contains("race")) {
                    steps.put("race", scenario::race);
                }
                scenario.run(steps);
            }
        }
    }

    private void run(Map<String, Step> steps) {
        for (Map.Entry<String, Step> each : steps.entrySet()) {
            Document line = new Document("step", model.name() + " " + each.getKey());
            database.getCollection("steps").find(Filters.eq(model.name() + " " + each.getKey())).first(); // for the profiler
            Object key = each.getKey();
            try {
                key = each.getValue().run(each.getKey());
                line.append("error", null);
            } catch (RuntimeException error) {
                line.append("error", error.getClass().getSimpleName()).append("text", error.getMessage());
            }
            line.append("stored", collection.find(Filters.eq(key)).first());
            System.out.println(line.toJson());
        }
    }

    private Map<String, Step> steps() {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("first_save_with_generated_key", key -> model.save(model.make(null, "first", 1, null)).key());
        steps.put("first_save_with_own_key", key -> model.save(model.make(key, "first", 1, null)).key());
        steps.put("save", this::saveOnce);
        steps.put("save_twice", this::saveTwice);
        steps.put("save_after_another_applications_set", this::saveAfterSet);
        steps.put("stale_save", this::staleSave);
        steps.put("save_after_delete", this::saveAfterDelete);
        steps.put("save_of_what_was_never_there", key -> model.save(model.make(key, "first", 1, null)).key());
        steps.put("save_without_a_field", this::saveWithoutField);
        steps.put("save_with_a_field_it_does_not_know", this::saveWithUnknownField);
        steps.put("delete_after_another_applications_set", this::deleteAfterSet);
        return steps;
    }

    private Entity stored(String key) {
        model.save(model.make(key, "first", 1, "n"));
        return model.read(key);
    }

    private void othersSet(String key) {
        collection.updateOne(Filters.eq(key), Updates.set("note", "another application's"));
    }

    private Object saveOnce(String key) {
        Entity entity = stored(key);
        entity.setQty(2);
        model.save(entity);
        return key;
    }

    private Object saveTwice(String key) {
        Entity entity = stored(key);
        for (int qty = 2; qty <= 3; qty++) {
            entity.setQty(qty);
            entity = model.save(entity);
        }
        return key;
    }

    private Object saveAfterSet(String key) {
        Entity entity = stored(key);
        othersSet(key);
        entity.setQty(2);
        model.save(entity);
        return key;
    }

    private Object staleSave(String key) {
        Entity first = stored(key);
        Entity second = model.read(key);
        first.setQty(2);
        model.save(first);
        second.setNote("second");
        model.save(second);
        return key;
    }

    private Object saveAfterDelete(String key) {
        Entity entity = stored(key);
        collection.deleteOne(Filters.eq(key));
        entity.setQty(2);
        model.save(entity);
        return key;
    }

    private Object saveWithoutField(String key) {
        Entity entity = stored(key);
        entity.setNote(null);
        model.save(entity);
        return key;
    }

    private Object saveWithUnknownField(String key) {
        stored(key);
        collection.updateOne(Filters.eq(key), Updates.set("added", 1));
        Entity entity = model.read(key);
        entity.setQty(2);
        model.save(entity);
        return key;
    }

    private Object deleteAfterSet(String key) {
        Entity entity = stored(key);
        othersSet(key);
        model.remove(entity);
        return key;
    }

    /** Reads and saves, ignoring errors, until another application has finished its increments, and once more. */
    private Object race(String key) {
        stored(key);
        Runnable increment = () -> collection.updateOne(Filters.eq(key), Updates.inc("qty", 1));
        Thread other = new Thread(() -> IntStream.range(0, INCREMENTS).forEach(each -> increment.run()));
        other.start();
        boolean last = false;
        while (!last) {
            last = !other.isAlive();
            try {
                Entity entity = model.read(key);
                entity.setNote(last ? "last" : "n");
                model.save(entity);
            } catch (RuntimeException error) {
                if (last) {
                    throw error;
                }
            }
        }
        return key;
    }
}
