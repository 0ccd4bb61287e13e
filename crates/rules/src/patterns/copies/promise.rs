//! The promise of an entry for a document before and after a checked statement: who writes a key writes its copied fields,
//! and who does not leaves them as they are.

use super::references::Reference;
use super::settings::CopiesEntry;
use crate::command::Operation;
use crate::document::{Document, PathLookup, Value};
use crate::effect::equality;
use crate::patterns::{Facts, Rejection};
use crate::shell::value_text;

impl CopiesEntry {
    /// Checks the references of a document. Those that are stored already may stay as they are.
    pub(super) fn promise(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        facts: &Facts<'_, '_>,
    ) -> Result<(), Rejection> {
        let known = before.map(|before| self.holders(before)).unwrap_or_default();
        let holders = self.holders(after);
        if holders.nested && !known.nested {
            return Err(self.misshapen());
        }
        for holder in &holders.documents {
            if known.documents.iter().any(|known| known.as_bytes() == holder.as_bytes()) {
                continue;
            }
            match self.reference(*holder) {
                Reference::Nothing => {}
                Reference::Misshapen => return Err(self.misshapen()),
                Reference::To(key) => {
                    let is_same = |known: &&Document<'_>| self.reference(**known) == Reference::To(key);
                    let earlier: Vec<Document<'_>> = known.documents.iter().filter(is_same).copied().collect();
                    self.check_copies(key, *holder, &earlier, before, facts)?;
                }
            }
        }
        Ok(())
    }

    /// Checks the copied fields of a holder. `earlier` are the holders with the same key before the statement.
    fn check_copies(
        &self,
        key: Value<'_>,
        holder: Document<'_>,
        earlier: &[Document<'_>],
        before: Option<Document<'_>>,
        facts: &Facts<'_, '_>,
    ) -> Result<(), Rejection> {
        for field in &self.fields {
            let copy = field.local.lookup(holder);
            let is_written = || before.is_none_or(|before| facts.name(&field.copied, before));
            if earlier.is_empty() {
                if !matches!(copy, PathLookup::Found(_)) || !is_written() {
                    return Err(Rejection::new(
                        format!("it would set '{}' to {} without '{}'", self.key, value_text(key), field.copied),
                        format!(
                            "Set '{}' in the same statement, to '{}' of that document.",
                            field.copied, field.original
                        ),
                    ));
                }
            } else if !earlier.iter().any(|known| field.local.lookup(*known) == copy) && !self.is_named(facts) {
                return Err(Rejection::new(
                    format!("it would change '{}', which is a copy", field.copied),
                    format!(
                        "Change '{}' in the original; docward updates the copies. To refer to another document, set \
                         '{}' too.",
                        field.original, self.key
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether the filter names the original, as in an application that updates the copies itself.
    fn is_named(&self, facts: &Facts<'_, '_>) -> bool {
        let Operation::Update(update) = facts.operation() else { return false };
        equality(update.filter.as_document(), self.key.as_str()).is_some()
    }

    pub(super) fn misshapen(&self) -> Rejection {
        Rejection::new(
            format!("it would store '{}' as an array, or inside an array of arrays", self.key),
            "Store one key in each document of an array.",
        )
    }
}
