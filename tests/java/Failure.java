import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoWriteException;
import com.mongodb.WriteError;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.bson.Document;

/** All error properties that an application can read, except texts about a lost connection. */
final class Failure {
    private Failure() {}

    static Document of(Throwable error) {
        Document described = new Document("type", error.getClass().getName());
        if (error instanceof MongoException ours) {
            described.append("code", ours.getCode()).append("labels", new ArrayList<>(new TreeSet<>(ours.getErrorLabels())));
        }
        if (error instanceof MongoCommandException command) {
            // Its message contains the whole response, including times.
            return described.append("response", command.getResponse()).append("name", command.getErrorCodeName())
                    .append("text", command.getErrorMessage());
        }
        if (error instanceof MongoSocketException) return described;
        described.append("text", error.getMessage());
        if (error instanceof MongoWriteException write) described.append("writes", List.of(write(write.getError())));
        if (error instanceof MongoBulkWriteException bulk) {
            described.append("result", bulk.getWriteResult().toString());
            described.append("writes", bulk.getWriteErrors().stream()
                    .map(each -> write(each).append("index", each.getIndex())).toList());
        }
        return described;
    }

    private static Document write(WriteError error) {
        return new Document("code", error.getCode()).append("message", error.getMessage())
                .append("category", error.getCategory().name()).append("details", error.getDetails());
    }
}
