//! Ways to a protected collection that no rule can analyse: commands that write other than by statements, statements
//! on the buckets of a time series, names that cannot be told.
//!
//! Refused where a rule guards the target, unless all such rules say `unsupported: allow`. Which commands these are
//! is up to the catalogue (`Class::road`), where they lead to `command::road_targets`.

use super::Session;
use super::judge::{Bench, Refused, Stance, asks_for_users, bench, stance};
use super::observation::Said;
use super::plan::{Plan, Refuse, Step, reject_command};
use crate::command::{Class, Command, Namespace, Target, code, road_targets};
use crate::patterns::{Rejection, Rule};
use crate::rules::{Mode, Unsupported, bucketed_collection};

/// Statements on the buckets of a time-series collection.
pub(super) const BUCKET_WRITE: &str = "write to the buckets of";

impl<'f> Plan<'f> {
    /// A way into a collection that is no statement.
    pub(super) fn road(
        &mut self,
        command: &Command<'f>,
        class: Class,
        what: &str,
        session: &Session,
    ) -> Result<Step, Refuse> {
        // Of known commands only the body is read here; drivers send nothing else of them.
        if class != Class::Unknown && !command.message.sequences.is_empty() {
            return self.untold(command, what, |_| true, session);
        }
        self.unanalysed(command, road_targets(command, class), what, session)
    }

    /// Writes that no rule can analyse: refused where one guards the target, unless all such rules allow it.
    pub(super) fn unanalysed(
        &mut self,
        command: &Command<'f>,
        targets: Vec<Target>,
        what: &str,
        session: &Session,
    ) -> Result<Step, Refuse> {
        for target in targets {
            let Ok((database, collection)) = target else {
                let step = self.untold(command, what, |_| true, session)?;
                if matches!(step, Step::ForwardOriginal { .. }) {
                    continue;
                }
                return Ok(step);
            };
            let namespace = Namespace { database: &database, collection: &collection };
            let bench = bench(self.rules, namespace, session);
            if asks_for_users(&bench, session) {
                return Ok(self.ask_for_users(command));
            }
            for (rule, stance) in bench {
                let rejection = Rejection::new(
                    format!("no rule can analyse what it writes ({what} the protected collection)"),
                    "Write by insert, update or delete. (For the DBA: `unsupported: allow` lets it pass.)",
                );
                let said = on_road(rule, stance);
                self.observations.note(rule, namespace, said, Some(&rejection));
                if said == Said::Reject {
                    let noun = what.rsplit_once(' ').map_or(what, |(noun, _)| noun);
                    return Ok(reject_command(command, &Refused { rule, rejection }, noun, namespace));
                }
            }
        }
        Ok(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() })
    }

    /// A command on a collection that cannot be told: the first of the rules it may concern speaks that refuses
    /// what it cannot analyse.
    fn untold(
        &mut self,
        command: &Command<'f>,
        what: &str,
        concerned: impl Fn(&Rule) -> bool,
        session: &Session,
    ) -> Result<Step, Refuse> {
        let rules = || {
            self.rules
                .rules()
                .iter()
                .filter(|rule| rule.mode != Mode::Disabled && rule.pattern.judges() && concerned(rule))
        };
        if session.users.is_none() && rules().any(|rule| !rule.except.users.is_empty()) {
            return Ok(self.ask_for_users(command));
        }
        match rules().find(|rule| on_road(rule, stance(rule, session)) == Said::Reject) {
            Some(rule) => Err(Refuse {
                code: code::DOCUMENT_VALIDATION_FAILURE,
                text: format!(
                    "{what} a collection that cannot be told, while rules such as '{}' guard some; name it by a string in the body",
                    rule.name.value
                ),
            }),
            None => Ok(Step::ForwardOriginal { expects_reply: !command.message.more_to_come() }),
        }
    }

    /// A read of a collection that is named by its UUID: it could be one whose reads a rule judges.
    pub(super) fn read_unnamed(
        &mut self,
        command: &Command<'f>,
        class: Class,
        session: &Session,
    ) -> Result<Step, Refuse> {
        let database = command.database.as_bytes();
        let judges = |rule: &Rule| {
            rule.pattern.judges_command(class, None)
                && rule.namespaces.iter().any(|namespace| namespace.value.database().matches(database))
        };
        self.untold(command, command.name, judges, session)
    }

    /// The rules that judge the statements of a namespace. The buckets of a time-series collection hold many
    /// documents each: no rule can analyse statements on them.
    pub(super) fn benches(&self, namespace: Namespace<'_>, session: &Session) -> (Option<Target>, Bench<'f>) {
        if bucketed_collection(namespace.collection.as_bytes()).is_none() {
            return (None, bench(self.rules, namespace, session));
        }
        (Some(Ok((namespace.database.to_owned(), namespace.collection.to_owned()))), Bench::new())
    }
}

/// What a rule says of a write that it cannot analyse.
pub(super) fn on_road(rule: &Rule, stance: Stance) -> Said {
    match rule.unsupported {
        Unsupported::Allow => Said::Allow,
        Unsupported::Reject => stance.rejects(),
    }
}
