//! Replacements: the stored document keeps its number.

use super::settings::Provided;
use super::{Sequence, kept, provides};
use crate::command::{Conditions, Modification, Operation, Update};
use crate::document::{CowDocument, Document, PathLookup, Value, edit};
use crate::patterns::filter::remade;
use crate::patterns::plain::{self, NotPlain};
use crate::patterns::{Prerequisite, Rewrite, Verdict, literal, selection};

impl Sequence {
    /// Evaluates a replacement, also one that another rule turned into a pipeline; the stored document keeps its number.
    ///
    /// # Errors
    /// docward's pipeline would also insert a number of the filter, or another rule has made a pipeline of several stages.
    pub(super) fn plain_replacement<'a>(
        &self,
        update: &Update<'a>,
        document: Document<'_>,
    ) -> Result<Verdict<'a>, NotPlain> {
        if update.multi {
            // The server rejects this replacement, but it would not reject a pipeline.
            return Ok(Verdict::Forward);
        }
        let own = match self.field().lookup(document) {
            PathLookup::Found(value) => Some(value).filter(|value| !self.is_no_number(*value)),
            PathLookup::Blocked(kind) => return Ok(self.no_room(kind)),
            PathLookup::Missing => None,
        };
        match own.filter(|value| !self.is_replaced(*value)) {
            Some(value) if value.as_whole().is_none() && !self.is_id() => {
                return Err(format!("it gives '{}' a value that is not a whole number", self.field()));
            }
            Some(value) if self.provided == Provided::Keep => return Ok(provides(value)),
            Some(value) => return Ok(self.only_stored(update, Some(value))),
            None => {}
        }
        let taken = if update.upsert { plain::taken(update.filter.as_document(), self.field())? } else { None };
        match taken {
            Some((value, _)) if self.is_id() && self.provided == Provided::Keep => Ok(provides(value)),
            Some(_) if self.is_id() => Ok(self.only_stored(update, None)),
            Some(_) => Err(format!("as an upsert, its filter gives '{}' a value", self.field())),
            None => self.keep(update, document, own.is_some()),
        }
    }

    /// Keeps the stored number, also instead of the client's. A replacement that may insert gets one, if upserts do or if it
    /// replaces the client's.
    fn keep<'a>(&self, update: &Update<'a>, document: Document<'_>, has_own: bool) -> Result<Verdict<'a>, NotPlain> {
        let assigns = update.upsert && (self.on_upsert || has_own && self.provided == Provided::Replace);
        if self.is_id() && !assigns {
            // The server keeps `_id` itself.
            return Ok(Verdict::Forward);
        }
        if let Some(rejection) = literal::operator_field(document) {
            return Ok(Verdict::Reject(rejection));
        }
        if assigns {
            return Ok(Verdict::Require(Prerequisite::Number, None));
        }
        let is_replacement = matches!(update.modification, Modification::Replacement(_));
        let without = (has_own && is_replacement).then(|| {
            Modification::Replacement(CowDocument::from_writer(edit::without(document, self.field().as_str())))
        });
        let modification = kept::keeping(without.as_ref().unwrap_or(&update.modification), self.field(), None);
        let modification = modification.ok_or("it replaces the document in several stages")?;
        let operation = remade(update, update.filter.clone(), modification, update.upsert);
        Ok(match has_own && !is_replacement {
            // A document without a number gets the client's.
            true => Verdict::Require(Prerequisite::ProvidedNumbers, Some(operation)),
            false => Verdict::rewrite(operation),
        })
    }

    /// Restricts the statement to documents with the client's number, so that it inserts no document with that number.
    pub(super) fn only_stored<'a>(&self, update: &Update<'a>, number: Option<Value<'_>>) -> Verdict<'a> {
        let mut conditions: Conditions<'a> = update.conditions.clone();
        if let Some(number) = number {
            conditions.push(selection::equality(self.field(), number));
        }
        let operation = Operation::Update(Update { conditions, upsert: false, ..update.clone() });
        Verdict::Rewrite(Rewrite { operation, checks_match: true, no_effect: None })
    }

    /// Evaluates a replacement that another rule turned into operators, which set the number to `value`. It keeps the stored
    /// number too: neither null nor a number that is replaced changes it.
    ///
    /// # Errors
    /// A document around the number is set.
    pub(super) fn plain_merged<'a>(&self, update: &Update<'a>, value: Value<'_>) -> Result<Verdict<'a>, NotPlain> {
        if !self.is_no_number(value) && !self.is_replaced(value) {
            return Ok(match self.provided {
                Provided::Keep => provides(value),
                Provided::Reject | Provided::Replace => self.only_stored(update, Some(value)),
            });
        }
        let without = match &update.modification {
            Modification::Operators(operators) => kept::without_set(operators.as_document(), self.field()),
            _ => None,
        };
        let without = without.ok_or_else(|| format!("it sets a document around '{}'", self.field()))?;
        let update = Update { modification: Modification::Operators(without), ..update.clone() };
        Ok(match self.plain_upsert(&update)? {
            Verdict::Forward => Verdict::rewrite(Operation::Update(update)),
            Verdict::Require(prerequisite, None) => Verdict::Require(prerequisite, Some(Operation::Update(update))),
            other => other,
        })
    }
}
