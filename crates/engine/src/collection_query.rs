//! The query of a rule that needs documents of the collection to evaluate a read. It is one find on the client's own
//! connection, as its user, before the client's command.

use crate::command::own::{self, CommandSession, Find};
use crate::command::{Command, Namespace, Reply};
use crate::patterns::collation::write_simple_collation;
use crate::patterns::{CollectionQuery, CommandVerdict, WholeCommand};

/// A rule needs one document, or the fact that there are more.
const LIMIT: i32 = 2;

/// Returns the find, with the read preference and read concern of the client's command.
pub(super) fn question(
    command: &Command<'_>,
    namespace: Namespace<'_>,
    collection_query: &dyn CollectionQuery,
) -> Vec<u8> {
    let filter = collection_query.filter();
    let fields = collection_query.fields();
    let found = Find { namespace, filter: filter.as_document(), projection: fields.as_document(), limit: LIMIT };
    own::find(command, CommandSession::Read, found, write_simple_collation)
}

/// Returns the verdict for the reply; an error counts as an empty result.
pub(super) fn conclude(
    collection_query: &dyn CollectionQuery,
    whole: &WholeCommand<'_>,
    reply: &[u8],
) -> CommandVerdict {
    let reply = Reply::parse(reply).ok().filter(Reply::is_ok);
    let found = reply.and_then(|reply| reply.found());
    collection_query.conclude(whole, &found.unwrap_or_default())
}
