//! Replacements: the stored document keeps its number.

use super::settings::Provided;
use super::{Sequence, kept, provides};
use crate::command::{Conditions, Modification, Operation, Update};
use crate::document::{CowDocument, Document, PathLookup, Value, edit};
use crate::effect::{self, Change, ImageValue};
use crate::patterns::filter::remade;
use crate::patterns::{Prerequisite, Rewrite, Verdict, literal, selection};

impl Sequence {
    /// Returns the document of a replacement, also of one that another rule turned into a pipeline.
    pub(super) fn replacement_of<'u>(update: &'u Update<'_>) -> Option<Document<'u>> {
        match &update.modification {
            Modification::Replacement(document) => Some(document.as_document()),
            Modification::Pipeline(pipeline) => match &pipeline.meaning {
                Modification::Replacement(document) => Some(document.as_document()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Evaluates a replacement; the stored document keeps its number. An upsert with a pipeline also inserts the
    /// filter's equalities, so a number in the filter counts as the replacement's.
    pub(super) fn evaluate_replacement<'a>(&self, update: &Update<'a>, document: Document<'_>) -> Verdict<'a> {
        if update.multi {
            // The server rejects this replacement, but it would not reject a pipeline.
            return Verdict::Forward;
        }
        let own = match self.field().lookup(document) {
            PathLookup::Found(value) if self.is_no_number(value) => None,
            PathLookup::Found(value) => Some(value),
            PathLookup::Blocked(kind) => return self.no_room(kind),
            PathLookup::Missing => None,
        };
        let filter = update.filter.as_document();
        // If the equalities contradict each other, only `_id` is inserted, as by the client's replacement.
        let is_inserted = |value: &Value<'_>| update.upsert && !self.is_no_number(*value) && effect::pins_agree(filter);
        let pinned = effect::equality(filter, self.field().as_str()).filter(is_inserted);
        let verdict = match (own, pinned) {
            (Some(value), None) if self.is_replaced(value) => self.keep_instead(update),
            // The pipeline would keep the number of the filter as if it were stored.
            (Some(value), Some(_)) if self.is_replaced(value) => {
                match self.keep_instead(&Update { upsert: false, ..update.clone() }) {
                    Verdict::Rewrite(Rewrite { operation: Operation::Update(kept), .. })
                    | Verdict::Require(_, Some(Operation::Update(kept))) => self.only_stored(&kept, None),
                    other => other,
                }
            }
            (Some(value), _) if self.provided == Provided::Keep => provides(value),
            (Some(value), _) => self.only_stored(update, Some(value)),
            (None, Some(_)) if self.provided != Provided::Keep => match self.keep_stored(update) {
                Verdict::Rewrite(Rewrite { operation: Operation::Update(kept), .. }) => self.only_stored(&kept, None),
                Verdict::Forward => self.only_stored(update, None),
                other => other,
            },
            (None, Some(value)) if self.is_id() => provides(value),
            (None, Some(value)) => match self.keep_stored(update) {
                Verdict::Rewrite(rewrite) => {
                    Verdict::Require(Prerequisite::ProvidedNumbers, Some(self.inserting(rewrite.operation, value)))
                }
                other => other,
            },
            (None, None) => self.keep(update, false),
        };
        match (verdict, literal::operator_field(document)) {
            (
                verdict @ (Verdict::Forward
                | Verdict::Require(Prerequisite::ProvidedNumbers, None)
                | Verdict::Reject(_)),
                _,
            )
            | (verdict, None) => verdict,
            (_, Some(rejection)) => Verdict::Reject(rejection),
        }
    }

    /// Keeps the stored number instead of the client's.
    fn keep_instead<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        match (self.keep(update, true), &update.modification) {
            (Verdict::Rewrite(_), Modification::Replacement(document)) => {
                let without = edit::without(document.as_document(), self.field().as_str());
                let modification = Modification::Replacement(CowDocument::from_writer(without));
                self.keep_stored(&Update { modification, ..update.clone() })
            }
            // A document without a number gets the client's.
            (Verdict::Rewrite(rewrite), _) => Verdict::Require(Prerequisite::ProvidedNumbers, Some(rewrite.operation)),
            (other, _) => other,
        }
    }

    /// Keeps the stored number. A replacement that may insert gets one, if upserts do or if it replaces the client's.
    fn keep<'a>(&self, update: &Update<'a>, has_own: bool) -> Verdict<'a> {
        let assigns = self.on_upsert || has_own && self.provided == Provided::Replace;
        if update.upsert && self.is_filled_by_filter(update) {
            return self.unclear();
        }
        if update.upsert && assigns { Verdict::Require(Prerequisite::Number, None) } else { self.keep_stored(update) }
    }

    /// Returns whether the equalities of an upsert's filter may give the field a value. The pipeline that keeps a stored
    /// number would keep it too, though the client's statement removes it: a replacement inserts only an `_id` of its
    /// filter.
    fn is_filled_by_filter(&self, update: &Update<'_>) -> bool {
        let filter = update.filter.as_document();
        !self.is_id() && effect::pins_agree(filter) && self.may_take_from(filter)
    }

    /// Returns whether an upsert by operators may take a number from its filter.
    pub(super) fn may_take_from(&self, filter: Document<'_>) -> bool {
        let equalities = effect::Equalities::of_filter(filter).filter(|equalities| !equalities.conflict());
        let taken = equalities.and_then(|equalities| equalities.document());
        taken.is_some_and(|taken| match taken.at(self.field()) {
            ImageValue::Value(value) => !self.is_no_number(value),
            held => held.may_be_there(),
        })
    }

    fn keep_stored<'a>(&self, update: &Update<'a>) -> Verdict<'a> {
        if self.is_id() {
            // The server keeps `_id` itself.
            return Verdict::Forward;
        }
        match kept::keeping(&update.modification, self.field(), None) {
            Some(modification) => Verdict::rewrite(remade(update, update.filter.clone(), modification, update.upsert)),
            None => self.unclear(),
        }
    }

    /// Adds the pinned number to the document that the replacement's pipeline inserts.
    fn inserting<'a>(&self, operation: Operation<'a>, pinned: Value<'_>) -> Operation<'a> {
        let Operation::Update(mut update) = operation else { return operation };
        if let Modification::Pipeline(pipeline) = &mut update.modification
            && let Modification::Replacement(document) = &pipeline.meaning
            && !self.is_no_number(pinned)
        {
            let inserted = CowDocument::from_writer(edit::set(document.as_document(), self.field(), pinned));
            pipeline.meaning = Modification::Replacement(inserted);
        }
        Operation::Update(update)
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

    /// Evaluates a replacement that another rule turned into operators. It keeps the stored number too: neither null,
    /// nor a number that is replaced, nor a document around the number changes it.
    pub(super) fn evaluate_merged<'a>(&self, operation: &Operation<'a>, update: &Update<'a>) -> Verdict<'a> {
        let (own, is_erased) = match effect::change(operation, self.field()) {
            Change::Set(value) if self.is_no_number(value) => (None, true),
            Change::Set(value) if !self.is_id() => (Some(value), false),
            Change::Removed => (None, true),
            _ => (None, false),
        };
        let Modification::Operators(operators) = &update.modification else {
            return self.evaluate_update(operation, update);
        };
        let is_replaced = own.is_some_and(|own| self.is_replaced(own));
        if let Some(own) = own.filter(|_| self.provided == Provided::Reject && !is_replaced) {
            return self.only_stored(update, Some(own));
        }
        let modification = match kept::set_around(operators.as_document(), self.field()) {
            Some(PathLookup::Blocked(kind)) if is_erased => return self.no_room(kind),
            Some(_) if is_erased => kept::setting_around(&update.modification, self.field()),
            None if is_erased || is_replaced => {
                kept::without_set(operators.as_document(), self.field()).map(Modification::Operators)
            }
            _ => None,
        };
        let verdict = self.evaluate_update(operation, update);
        let Some(modification) = modification else { return verdict };
        let with = |update: &Update<'a>| Operation::Update(Update { modification, ..update.clone() });
        match verdict {
            Verdict::Forward => Verdict::rewrite(with(update)),
            Verdict::Require(Prerequisite::ProvidedNumbers, None) => {
                Verdict::Require(Prerequisite::ProvidedNumbers, Some(with(update)))
            }
            Verdict::Require(Prerequisite::Number, None) => Verdict::Require(Prerequisite::Number, Some(with(update))),
            Verdict::Rewrite(Rewrite { operation: Operation::Update(stored), checks_match, no_effect }) => {
                Verdict::Rewrite(Rewrite { operation: with(&stored), checks_match, no_effect })
            }
            other => other,
        }
    }
}
