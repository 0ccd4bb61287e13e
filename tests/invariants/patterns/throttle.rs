//! `throttle`: with enough permits it changes nothing.

use bson::Document;

use super::super::dice::Dice;
use super::super::rules::{Change, Promise};

#[derive(Clone, Debug)]
pub(in super::super) struct Throttle {
    per: &'static str,
    concurrent: u32,
}

impl Throttle {
    pub(in super::super) fn random(dice: &mut Dice) -> Throttle {
        Throttle { per: dice.pick(&["app", "user", "client"]), concurrent: dice.pick(&[1, 2, 50]) }
    }
}

impl Promise for Throttle {
    fn name(&self) -> &'static str {
        "throttle"
    }

    fn settings(&self) -> String {
        let Throttle { per, concurrent } = self;
        format!("throttle: {{ concurrent: {concurrent}, rate: 1000000/s, per: {per}, wait: 60s }}")
    }

    fn fields(&self) -> Vec<String> {
        vec!["note".to_owned()]
    }

    fn tidy(&self, _: &mut Dice, _: &mut Document) {}

    fn broken(&self, _: &Change<'_>) -> Option<String> {
        None
    }
}
