//! `throttle`: bounds how much of the server one application, user or client uses at a time.
//!
//! A report of one application sends thousands of queries, and the requests of all others wait behind them. With a rule
//! each application has so many permits. A command takes one before it is sent and returns it after its last reply;
//! commands beyond them wait in order of arrival. The pattern only determines which permits a command needs:
//! `crate::engine::permits` asks for them, and `crate::proxy` keeps them.

pub(super) mod limits;

use std::num::NonZeroU32;

use super::{Applicability, Pattern, Properties};
use crate::command::{CommandClass, Namespace, StatementKind};
use crate::config::keys::{
    self, Constraint, Declaration, DeclaredScalar, DescribeSchema, Keys, Keywords, ReadValue, Setting, TextSchema,
    ValueSchema, WholeNumber,
};
use crate::config::{Code, Located, MapReader, Node, NodeValue, ReadContext};
pub use limits::{LimitedClient, ThrottleLimits};

/// Settings of the pattern.
#[derive(Debug, Clone)]
pub struct Throttle {
    limits: ThrottleLimits,
}

const CONCURRENT: Setting<WholeNumber> =
    Setting::optional("concurrent", WholeNumber(1..=1_000_000), "The maximum number of commands at a time.");
const RATE: Setting<Rate> =
    Setting::optional("rate", Rate, "The maximum number of statements in a second.").examples(&["1000/s"]);
const PER: Setting<Keywords<LimitedClient>> = Setting::required(
    "per",
    Keywords(&[
        ("app", LimitedClient::App, "The clients with the same application name (`appName` of the connection string)."),
        ("user", LimitedClient::User, "The clients with the same authenticated user."),
        ("client", LimitedClient::Client, "The clients with the same IP address."),
    ]),
    "The clients that share a limit.",
);
const WAIT: Setting<keys::Duration> = Setting::with_default(
    "wait",
    keys::Duration,
    DeclaredScalar::Text("2s"),
    "How long a command may wait. Then the client gets an overload error.",
);
const KEYS: Keys =
    Keys::new("How much one application, user or client may use at a time.", &[&CONCURRENT, &RATE, &PER, &WAIT])
        .constrained(&[Constraint::AtLeastOneOf(&["concurrent", "rate"])]);

impl Pattern for Throttle {
    fn declaration() -> Declaration {
        Declaration::mapping(&KEYS).example("{ concurrent: 50, per: app }")
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        context.mapping(settings, &KEYS, |reader| Self::read_keys(settings, reader))
    }

    fn properties(&self) -> Properties {
        Properties { permits: Some(self.limits), ..Properties::default() }
    }

    fn can_reject(&self, _: CommandClass, _: Namespace<'_>) -> bool {
        false
    }

    fn applicability(&self, _: StatementKind, _: Namespace<'_>) -> Applicability {
        Applicability::None
    }

    /// Commands that the coverage lists as enforced need a permit.
    fn evaluates_command(&self, class: CommandClass, _: Option<StatementKind>, _: Namespace<'_>) -> bool {
        CommandClass::REACHING.contains(&class)
    }
}

impl Throttle {
    fn read_keys(settings: &Node, reader: &mut MapReader<'_, '_, '_>) -> Option<Self> {
        let number = |written: Located<i64>| u32::try_from(written.value).ok().and_then(NonZeroU32::new);
        let is_written = [CONCURRENT.name, RATE.name].iter().any(|key| reader.node(key).is_some());
        let concurrent = reader.get(&CONCURRENT).and_then(number);
        let rate = reader.get(&RATE);
        let per = reader.get(&PER);
        let wait = reader.get_or_default(&WAIT);
        if !is_written {
            let message = "a `throttle` rule needs `concurrent`, `rate` or both";
            reader.context().error(Code::MissingKey, settings.span, message);
        }
        if concurrent.is_none() && rate.is_none() {
            return None;
        }
        Some(Self { limits: ThrottleLimits { concurrent, rate, per: per?.value, wait: wait?.value } })
    }
}

/// A number in a second: `1000/s`.
#[derive(Clone, Copy, Debug)]
struct Rate;

impl DescribeSchema for Rate {
    fn schema(&self) -> ValueSchema {
        ValueSchema::Text(TextSchema::matching("^0*[1-9][0-9]{0,6}/s$"))
    }
}

impl ReadValue for Rate {
    type Value = NonZeroU32;

    fn read(&self, context: &mut ReadContext<'_>, key: &'static str, node: &Node) -> Option<NonZeroU32> {
        let text = if let NodeValue::Text(text) = &node.value { text.as_str() } else { "" };
        let digits = text.strip_suffix("/s").filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok()).filter(|number| *number < 10_000_000);
        let rate = number.and_then(NonZeroU32::new);
        if rate.is_none() {
            let message =
                format!("`{key}` must be a number of statements in a second, from 1/s to 9999999/s: `1000/s`");
            context.error(Code::InvalidValue, node.span, message);
        }
        rate
    }
}
