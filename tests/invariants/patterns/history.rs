//! `history`: it changes nothing in the collection. `super::super::change_stream` checks the previous states.

use bson::Document;

use super::super::dice::Dice;
use super::super::rules::{Change, Promise};

#[derive(Clone, Debug)]
pub(in super::super) struct History;

impl Promise for History {
    fn name(&self) -> &'static str {
        "history"
    }

    fn settings(&self) -> String {
        "history: { into: protected.COLLECTION_history, keep: 1000000 }".to_owned()
    }

    fn fields(&self) -> Vec<String> {
        vec!["note".to_owned()]
    }

    fn tidy(&self, _: &mut Dice, _: &mut Document) {}

    fn broken(&self, _: &Change<'_>) -> Option<String> {
        None
    }
}
