//! The query of a rule that needs documents of the collection to evaluate a read. It is one find on the client's own
//! connection, as its user, before the client's command.

use crate::command::{Command, Namespace, Reply};
use crate::document::{CowDocument, Document, Value, Writer};
use crate::patterns::{CollectionQuery, CommandVerdict, WholeCommand};
use crate::wire::op_msg;

/// A rule needs one document, or the fact that there are more.
const LIMIT: i32 = 2;

/// Returns the find, with the read preference and read concern of the client's command.
pub(super) fn question(
    command: &Command<'_>,
    namespace: Namespace<'_>,
    collection_query: &dyn CollectionQuery,
) -> Vec<u8> {
    let filter = CowDocument::from_writer(collection_query.filter());
    let fields = CowDocument::from_writer(collection_query.fields());
    let mut writer = op_msg::Writer::new(command.message.header.request_id, 0, 0, 256);
    writer.body(|out| {
        Writer::document(out, |w| {
            w.string("find", namespace.collection);
            w.value("filter", Value::document(filter.as_document()));
            w.value("projection", Value::document(fields.as_document()));
            w.int32("limit", LIMIT);
            w.boolean("singleBatch", true);
            w.nested("collation", |w| w.string("locale", "simple"));
            for element in command.body.elements() {
                if matches!(element.key, b"lsid" | b"$clusterTime" | b"$readPreference" | b"readConcern" | b"maxTimeMS")
                {
                    w.element(element);
                }
            }
            command.api_parameters().for_each(|element| w.element(element));
            w.string("$db", namespace.database);
        });
    });
    writer.finish()
}

/// Returns the verdict for the reply; an error counts as an empty result.
pub(super) fn conclude(
    collection_query: &dyn CollectionQuery,
    whole: &WholeCommand<'_>,
    answer: &[u8],
) -> CommandVerdict {
    let reply = Reply::parse(answer).ok().filter(Reply::is_ok);
    let found = reply.and_then(|reply| {
        let batch = reply.body.get("cursor")?.as_document()?.get("firstBatch")?.as_array()?;
        batch.values().map(Value::as_document).collect::<Option<Vec<Document<'_>>>>()
    });
    collection_query.conclude(whole, &found.unwrap_or_default())
}
