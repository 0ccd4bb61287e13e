import com.mongodb.event.CommandFailedEvent;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import com.mongodb.event.CommandSucceededEvent;
import java.math.BigInteger;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.bson.BsonArray;
import org.bson.BsonBinaryWriter;
import org.bson.BsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.EncoderContext;
import org.bson.io.BasicOutputBuffer;

/**
 * Stores replies as the driver received them. Replies of waiting cursors, and of change streams, are merged, because
 * their number depends on timing.
 */
final class Recorder implements CommandListener {
    private static final int LARGE = 100_000; // only the digest of larger batches is printed

    private List<Object> replies = new ArrayList<>();
    private final Set<Integer> waiting = new HashSet<>();
    private final Set<Long> streams = new HashSet<>(); // cursors of change streams

    @Override
    public synchronized void commandStarted(CommandStartedEvent event) {
        if (waits(event.getCommandName(), event.getCommand())) waiting.add(event.getRequestId());
    }

    @Override
    public synchronized void commandSucceeded(CommandSucceededEvent event) {
        String name = event.getCommandName();
        if (!waiting.remove(event.getRequestId())) {
            replies.add(Scenario.list(name, comparable(name, event.getResponse())));
        } else if (name.equals("aggregate")) {
            streams.add(event.getResponse().getDocument("cursor").getInt64("id").getValue());
        }
    }

    @Override
    public synchronized void commandFailed(CommandFailedEvent event) {
        if (waiting.remove(event.getRequestId())) return;
        replies.add(Scenario.list(event.getCommandName(), Failure.of(event.getThrowable())));
    }

    synchronized List<Object> take() {
        List<Object> taken = replies;
        replies = new ArrayList<>();
        return taken;
    }

    private boolean waits(String name, BsonDocument command) {
        return switch (name) {
            case "aggregate" -> command.getArray("pipeline").stream()
                    .anyMatch(stage -> stage.asDocument().containsKey("$changeStream"));
            case "getMore" -> command.containsKey("maxTimeMS") || streams.contains(command.getInt64("getMore").getValue());
            case "killCursors" -> streams.contains(command.getArray("cursors").get(0).asInt64().getValue());
            default -> false;
        };
    }

    private static Object comparable(String name, BsonDocument reply) {
        if (name.equals("configureFailPoint")) return reply.get("ok"); // the other fields count all uses since mongod started
        BsonDocument cursor = reply.getDocument("cursor", new BsonDocument());
        BsonArray batch = cursor.getArray("firstBatch", cursor.getArray("nextBatch", new BsonArray()));
        if (name.equals("listCollections")) { // in the order of a hash table
            return batch.stream().map(each -> each.asDocument().getString("name").getValue()).sorted().toList();
        }
        byte[] bytes = bytes(new BsonDocument("batch", batch));
        return bytes.length > LARGE ? List.of(bytes.length, digest(bytes)) : reply.clone();
    }

    static byte[] bytes(BsonDocument document) {
        BasicOutputBuffer buffer = new BasicOutputBuffer();
        new BsonDocumentCodec().encode(new BsonBinaryWriter(buffer), document, EncoderContext.builder().build());
        return buffer.toByteArray();
    }

    static String digest(byte[] bytes) {
        try {
            return new BigInteger(1, MessageDigest.getInstance("SHA-256").digest(bytes)).toString(16);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible); // every Java has it
        }
    }
}
