import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.Sorts;
import com.mongodb.event.ServerHeartbeatSucceededEvent;
import com.mongodb.event.ServerMonitorListener;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/**
 * A scenario of MongoDB's driver for Java, as in applications.
 *
 * <pre>
 * Scenario steps URI DATABASE   runs the steps; a direct run and one through docward must print the same
 *                              apart from ids and times
 * Scenario rules URI DATABASE   shows docward's rejections and rewriting to an application
 * Scenario load URI DATABASE    works until standard input ends; prints the number of operations and the errors
 * Scenario codes URI DATABASE   runs operations for each line of standard input; prints their errors
 * </pre>
 *
 * A step returns a result or an error. Each line of output is Extended JSON with the result and every server reply
 * that the driver received meanwhile.
 */
final class Scenario {
    static final String APPLICATION = "java-scenario"; // failpoints affect only this scenario's client

    private static final JsonWriterSettings CANONICAL =
            JsonWriterSettings.builder().outputMode(JsonMode.EXTENDED).build();

    /** Runs on an empty database. */
    interface Step {
        Object run(Scenario scenario) throws Exception;
    }

    final MongoClient client;
    final MongoDatabase db;
    /** From a client without recording, for commands whose number varies. */
    final MongoDatabase observer;

    private final AtomicInteger awaitedHeartbeats;
    private int heartbeatsBefore; // the step

    private Scenario(MongoClient client, MongoClient unrecorded, String database, AtomicInteger awaitedHeartbeats) {
        this.client = client;
        this.db = client.getDatabase(database);
        this.observer = unrecorded.getDatabase(database);
        this.awaitedHeartbeats = awaitedHeartbeats;
    }

    public static void main(String[] arguments) throws Exception {
        String mode = arguments[0], uri = arguments[1], database = arguments[2];
        switch (mode) {
            case "steps" -> {
                Map<String, Step> steps = CrudSteps.steps();
                steps.putAll(CursorSteps.steps());
                steps.putAll(SessionSteps.steps());
                run(steps, uri, database);
            }
            case "rules" -> run(RuleSteps.steps(), uri, database);
            case "load" -> Load.run(uri, database);
            case "codes" -> Codes.run(uri, database);
            default -> throw new IllegalArgumentException("steps|rules|load|codes URI DATABASE");
        }
    }

    private static void run(Map<String, Step> steps, String uri, String database) {
        Recorder recorder = new Recorder();
        AtomicInteger awaited = new AtomicInteger();
        MongoClientSettings settings = MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(uri))
                .applicationName(APPLICATION)
                .addCommandListener(recorder)
                .applyToServerSettings(server -> server.heartbeatFrequency(500, TimeUnit.MILLISECONDS)
                        .addServerMonitorListener(new ServerMonitorListener() {
                            @Override
                            public void serverHeartbeatSucceeded(ServerHeartbeatSucceededEvent event) {
                                if (event.isAwaited()) awaited.incrementAndGet();
                            }
                        }))
                .build();
        try (MongoClient client = MongoClients.create(settings); MongoClient unrecorded = MongoClients.create(uri)) {
            Scenario scenario = new Scenario(client, unrecorded, database, awaited);
            steps.forEach((name, step) -> {
                scenario.db.drop();
                recorder.take();
                scenario.heartbeatsBefore = awaited.get();
                Document line = new Document("step", name).append("outcome", outcome(scenario, step));
                emit(line.append("replies", recorder.take()));
            });
            scenario.db.drop();
        }
    }

    private static Document outcome(Scenario scenario, Step step) {
        try {
            return new Document("result", plain(step.run(scenario)));
        } catch (Exception error) {
            return new Document("error", Failure.of(error));
        }
    }

    static void emit(Document line) {
        System.out.println(line.toBsonDocument(BsonDocument.class, MongoClientSettings.getDefaultCodecRegistry())
                .toJson(CANONICAL));
    }

    /** The driver's result objects as text, other values unchanged. */
    private static Object plain(Object value) {
        if (value instanceof List<?> list) return list.stream().map(Scenario::plain).toList();
        if (value == null || value instanceof Map || value instanceof Number || value instanceof Boolean) return value;
        return value.toString();
    }

    /** A list that may contain nulls. */
    static List<Object> list(Object... values) {
        return new ArrayList<>(Arrays.asList(values));
    }

    /** A document from alternating names and values. */
    static Document doc(Object... pairs) {
        Document document = new Document();
        for (int i = 0; i < pairs.length; i += 2) document.append((String) pairs[i], pairs[i + 1]);
        return document;
    }

    /** The error that a step expects. */
    static Object caught(java.util.concurrent.Callable<?> work) {
        try {
            return list("no error", work.call());
        } catch (Exception error) {
            return Failure.of(error);
        }
    }

    /** Whether the server monitor received a reply to an awaited heartbeat since the step began. */
    boolean heartbeatWasAwaited() {
        return awaitedHeartbeats.get() > heartbeatsBefore;
    }

    MongoCollection<Document> people(int count) {
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            documents.add(doc("_id", i, "name", "name" + i, "age", 20 + i, "tags", List.of("a", "t" + i)));
        }
        db.getCollection("people").insertMany(documents);
        return db.getCollection("people");
    }

    static List<Document> contents(MongoCollection<Document> collection) {
        return collection.find().sort(Sorts.ascending("_id")).into(new ArrayList<>());
    }

    /** Makes the server fail the next `times` commands with this name, from this scenario's client only. */
    void failNext(int times, String command, Object... how) {
        String name = System.getenv().getOrDefault("FAILPOINT_APP_NAME", APPLICATION);
        Document data = doc("appName", name, "failCommands", List.of(command));
        data.putAll(doc(how));
        client.getDatabase("admin")
                .runCommand(doc("configureFailPoint", "failCommand", "mode", doc("times", times), "data", data));
    }
}
