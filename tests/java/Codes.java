import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.InsertOneModel;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.bson.Document;

/** Runs each operation for each line of standard input, and prints what an application sees of its error. */
final class Codes {
    private Codes() {}

    static void run(String uri, String database) throws Exception {
        try (MongoClient client = MongoClients.create(uri)) {
            MongoCollection<Document> things = client.getDatabase(database).getCollection("things");
            Document change = Scenario.doc("$set", Scenario.doc("a", 1));
            Map<String, Runnable> operations = new LinkedHashMap<>();
            operations.put("insert", () -> things.insertOne(Scenario.doc("a", 1)));
            operations.put("bulk", () -> things.bulkWrite(List.of(new InsertOneModel<>(Scenario.doc("a", 1)))));
            operations.put("find", () -> things.find().first());
            operations.put("findAndModify", () -> things.findOneAndUpdate(Scenario.doc("_id", 1), change));
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            while (lines.readLine() != null) {
                operations.forEach(Codes::show);
            }
        }
    }

    private static void show(String name, Runnable operation) {
        long began = System.nanoTime();
        String text = "no error";
        try {
            operation.run();
        } catch (RuntimeException error) {
            text = error.getMessage();
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        Scenario.emit(Scenario.doc("operation", name, "text", text, "seconds", seconds));
    }
}
