//! Three small patterns for tests of the rules layer. `together` claims fields, and all its rules apply.
//! `replacement` is exclusive. `everything` has every kind of setting and makes later rules of its kind ineffective.

use super::context::{Located, ReadContext};
use super::node::Node;
use super::reader::MapReader;
use super::rule::{Claim, Pattern, WeakerSetting};

#[derive(Debug)]
pub(super) enum StubPattern {
    Together(Vec<Located<String>>),
    Replacement(StubPolicy),
    Everything,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StubPolicy {
    Reject,
    Merge,
}

impl Pattern for StubPattern {
    const NAMES: &'static [&'static str] = &["replacement", "together", "everything"];

    fn read(name: &'static str, settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        match name {
            "together" => Some(Self::Together(context.texts(settings, "`together`")?)),
            "replacement" => {
                let mut settings = context.map(settings)?;
                let words = [("reject", StubPolicy::Reject), ("merge", StubPolicy::Merge)];
                let policy = settings.choice("policy", &words);
                settings.text("version");
                settings.finish();
                Some(Self::Replacement(policy.map_or(StubPolicy::Reject, |word| word.value)))
            }
            _ => {
                let mut settings = context.map(settings)?;
                settings.required("number", MapReader::number);
                settings.required_choice("word", &[("yes", true), ("no", false)]);
                settings.integer_in("count", 1..=10);
                settings.integer_in("block", 1..=i64::MAX);
                settings.boolean("flag");
                settings.duration("lease");
                settings.texts("fields");
                if let Some(mut inner) = settings.map("inner") {
                    inner.required_integer("depth");
                    inner.finish();
                }
                settings.finish();
                Some(Self::Everything)
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Together(_) => "together",
            Self::Replacement(_) => "replacement",
            Self::Everything => "everything",
        }
    }

    fn phase(&self) -> u8 {
        match self {
            Self::Replacement(_) => 1,
            Self::Together(_) => 2,
            Self::Everything => 3,
        }
    }

    fn exclusive(&self) -> bool {
        matches!(self, Self::Replacement(_))
    }

    fn makes_ineffective(&self, later: &Self) -> bool {
        matches!((self, later), (Self::Everything, Self::Everything))
    }

    fn weaker_settings(&self) -> Vec<WeakerSetting> {
        match self {
            Self::Replacement(StubPolicy::Merge) => vec![WeakerSetting { what: "merges", setting: "policy" }],
            _ => Vec::new(),
        }
    }

    fn claims(&self) -> Vec<Claim> {
        let Self::Together(fields) = self else {
            return Vec::new();
        };
        let claim = |field: &Located<String>| Claim { kind: "together", field: field.clone() };
        fields.iter().map(claim).collect()
    }
}
