//! `together`: fields that must change in one statement.
//!
//! A library stores the number of available copies and a list of borrowers. The pattern rejects a statement that
//! changes one of them without the other, and a document that has only one of the fields.

use std::collections::BTreeSet;

use bson::doc;
use smallvec::SmallVec;

use super::field_path::{ChangingField, overlap};
use super::plain::{self, Form, NotPlain, PlainWrite};
use super::promise::{BeforeAndAfter, Broken, Facts, held, shown, split_path};
use super::stored_data::{DataCheck, all, any, has_type, is_one_of, not, value};
use super::stored_state::all_or_none;
use super::{
    Applicability, Context, Pattern, Procedures, Properties, Rejection, RuleView, StateCondition, Verdict,
    applicability_for_content,
};
use crate::command::{Namespace, Operation, Statement, StatementKind, Update};
use crate::config::keys::{Declaration, DescribeSchema, ReadValue, TextOrList, ValueSchema};
use crate::config::{Code, Node, NodeValue as Yaml, ReadContext};
use crate::document::{Document, Path, Value};

const HINT: &str = "Write all of these fields in one statement, or none of them.";

/// Settings of the pattern: at least two fields.
#[derive(Debug, Clone)]
pub struct Together {
    fields: Vec<Path>,
}

impl Pattern for Together {
    fn declaration() -> Declaration {
        let items = Box::new(ChangingField.schema());
        let schema = ValueSchema::List { items, at_least: 2, distinct: true };
        Declaration { meaning: "Fields that must change in one statement.", schema, example: "[a, b]" }
    }

    fn read(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        Self::read_list(settings, context)
    }

    fn applicability(&self, kind: StatementKind, _: Namespace<'_>) -> Applicability {
        applicability_for_content(kind)
    }

    fn evaluate<'a>(&self, statement: &Statement<'a>, _: &Context<'_>) -> Verdict<'a> {
        match self.plain(&statement.operation) {
            Ok(Ok(())) => Verdict::Forward,
            Ok(Err(broken)) => Verdict::Reject(broken),
            Err(odd) => Verdict::not_plain(odd),
        }
    }

    fn properties(&self) -> Properties {
        let fields = self.fields.iter().map(|field| (field.clone(), plain::WRITING_ONE));
        Properties { procedures: Procedures::NotPlain(fields.collect()), ..Properties::default() }
    }

    fn promise(&self, (before, after): BeforeAndAfter<'_>, facts: &Facts<'_, '_>) -> Result<(), Broken> {
        match (before, after) {
            (_, None) => Ok(()),
            (None, Some(inserted)) => Ok(self.check_document(inserted)?),
            (Some(before), Some(after)) => Ok(self.check_change(before, after, facts)?),
        }
    }

    fn data_checks(&self, _: Namespace<'_>) -> Vec<DataCheck> {
        let names: Vec<String> = self.fields.iter().map(|field| format!("`{field}`")).collect();
        let some = |references: &[String]| {
            let lacking = || references.iter().map(|field| has_type(field.as_str(), &["missing"]));
            all(vec![any(lacking().collect()), any(lacking().map(not).collect())])
        };
        let references: Vec<String> = self.fields.iter().map(value).collect();
        let condition = match self.array_around() {
            None => some(&references),
            // The value of a field in an array is the array of its elements' values.
            Some((array, below)) => {
                let below: Vec<String> = below.iter().map(|field| format!("$$this.{field}")).collect();
                let elements = doc! {"$map": {"input": value(&array), "in": some(&below)}};
                doc! {"$cond": [is_one_of(&array, &["array"]), {"$anyElementTrue": [elements]}, some(&references)]}
                    .into()
            }
        };
        vec![DataCheck::each(
            format!("with some of {}, but not all", names.join(", ")),
            "the fields disagree already, and the rule does not correct what is stored",
            condition,
        )]
    }

    fn stored_state(&self) -> Vec<StateCondition> {
        let fields: Vec<&Path> = self.fields.iter().collect();
        let meaning = format!("it has all of {} or none", list(&fields));
        let agreed = agreed(&self.fields);
        agreed.map(|schema| StateCondition::schema(meaning, &fields, schema)).into_iter().collect()
    }

    fn conflict_with(&self, other: RuleView<'_>, _: Namespace<'_>) -> Option<&'static str> {
        self.fields.iter().find_map(|field| other.pattern.partial_change_reason(field))
    }

    fn check_final(&self, statement: &Statement<'_>) -> Result<(), Rejection> {
        self.plain(&statement.operation).unwrap_or_else(|odd| Err(plain::reason_to_check(odd)))
    }
}

/// A field by its index in the rule, and the rest of its path below some value.
type FieldBelow<'p> = (usize, &'p [u8]);

impl Together {
    /// Returns the innermost field around all fields, which may be an array of documents, and their paths below it.
    fn array_around(&self) -> Option<(Path, Vec<&str>)> {
        let first = self.fields.first()?;
        let is_around_all = |around: &&str| self.fields.iter().all(|field| field.is_below(around.as_bytes()));
        let around = first.parents().filter(is_around_all).last()?;
        let below = self.fields.iter().filter_map(|field| field.as_str().get(around.len() + 1..)).collect();
        Some((Path::parse(around)?, below))
    }

    fn read_list(settings: &Node, context: &mut ReadContext<'_>) -> Option<Self> {
        let code = match &settings.value {
            Yaml::List(items) if items.len() >= 2 => None,
            Yaml::List(_) => Some(Code::InvalidValue),
            _ => Some(Code::WrongType),
        };
        if let (Yaml::List(items), Some(_)) = (&settings.value, code)
            && !items.is_empty()
        {
            // Its one field may be a list in one text.
            TextOrList(ChangingField).read(context, "together", settings);
        }
        if let Some(code) = code {
            let message = "`together` must be a list of at least two fields: `together: [a, b]`";
            context.error(code, settings.span, message);
            return None;
        }
        let fields = TextOrList(ChangingField).read(context, "together", settings)?;
        if let Some((field, other)) = overlap(&fields) {
            let message = format!("`{}` overlaps `{}`: they always change together", field.value, other.value);
            context.error(Code::ConflictingSettings, field.span, message);
            return None;
        }
        Some(Self { fields: fields.into_iter().map(|field| field.value).collect() })
    }

    /// Checks a statement of a plain form.
    ///
    /// # Errors
    /// The statement is not plain.
    fn plain(&self, operation: &Operation<'_>) -> Result<Result<(), Rejection>, NotPlain> {
        match plain::form(operation) {
            Form::Nothing => Ok(Ok(())),
            Form::Document(document) => Ok(self.check_document(document)),
            Form::Update(update) => self.plain_update(update),
        }
    }

    fn plain_update(&self, update: &Update<'_>) -> Result<Result<(), Rejection>, NotPlain> {
        let mut presence: SmallVec<[Option<bool>; 4]> = SmallVec::new();
        let mut elements: SmallVec<[Option<&[u8]>; 4]> = SmallVec::new();
        for field in &self.fields {
            let (written, element) = match plain::stored(update, field)? {
                PlainWrite::Untouched => (None, None),
                PlainWrite::Removed => (Some(false), None),
                PlainWrite::Set(_) | PlainWrite::Operator(_) | PlainWrite::Shrinks(_) => (Some(true), None),
                PlainWrite::InElement(element) => (Some(true), Some(element)),
            };
            presence.push(written);
            elements.push(element);
        }
        let (first, is_touched) = (elements.first().copied().flatten(), presence.iter().any(Option::is_some));
        let touched: SmallVec<[Option<bool>; 4]> = presence.iter().map(|written| Some(written.is_some())).collect();
        if let Err(broken) =
            self.all_or_none("it changes", &touched).and_then(|()| self.all_or_none("it writes", &presence))
        {
            return Ok(Err(broken));
        }
        if is_touched && elements.iter().any(|element| *element != first) {
            return Err("it writes its fields in different elements of arrays".to_owned());
        }
        if update.upsert {
            let inserts = self.fields.iter().map(|field| {
                let write = plain::inserted(update, field)?;
                Ok(Some(!matches!(write, PlainWrite::Untouched | PlainWrite::Removed)))
            });
            let inserts: SmallVec<[Option<bool>; 4]> = inserts.collect::<Result<_, NotPlain>>()?;
            if self.all_or_none("", &inserts).is_err() {
                return Err("as an upsert, it may insert some of its fields only".to_owned());
            }
        }
        Ok(Ok(()))
    }

    /// Checks an inserted document or a replacement: it has all of the fields or none, and so has each array element.
    fn check_document(&self, document: Document<'_>) -> Result<(), Rejection> {
        let presence: SmallVec<[Option<bool>; 4]> =
            self.fields.iter().map(|field| Some(!held(document, field.as_str().as_bytes()).is_empty())).collect();
        self.check_elements(None, document, &self.all_below())?;
        self.all_or_none("it has", &presence)
    }

    /// Checks the change of a stored document: all of the fields change or are named as targets, or none; and a document that
    /// had all or none of them still does.
    fn check_change(&self, before: Document<'_>, after: Document<'_>, facts: &Facts<'_, '_>) -> Result<(), Rejection> {
        let mut changed: SmallVec<[Option<bool>; 4]> = SmallVec::new();
        let (mut was, mut is) = (SmallVec::<[bool; 4]>::new(), SmallVec::<[Option<bool>; 4]>::new());
        let mut values = String::new();
        for field in &self.fields {
            let path = field.as_str().as_bytes();
            let (old, new) = (held(before, path), held(after, path));
            if old != new && values.is_empty() {
                values = format!(": '{field}' from {} to {}", shown(&old), shown(&new));
            }
            changed.push(Some(old != new || facts.name(field, before)));
            was.push(!old.is_empty());
            is.push(Some(!new.is_empty()));
        }
        let with_values = |broken: Rejection| Rejection::new(broken.reason + &values, broken.hint);
        self.all_or_none("it would change", &changed).map_err(with_values)?;
        let was_mixed = was.contains(&true) && was.contains(&false);
        if !was_mixed {
            self.all_or_none("it would leave", &is).map_err(with_values)?;
        }
        self.check_elements(Some(before), after, &self.all_below())
    }

    /// Checks the elements of arrays on the way to the fields: each has all of the fields in it or none, and they change
    /// together. Elements that are stored already may stay as they are. The depth of paths bounds the recursion.
    fn check_elements(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        fields: &[FieldBelow<'_>],
    ) -> Result<(), Rejection> {
        let mut rest = fields;
        while let Some(((_, path), others)) = rest.split_first() {
            rest = others;
            let part = split_path(path).0;
            let is_seen = fields.iter().take(fields.len() - others.len() - 1).any(|(_, one)| split_path(one).0 == part);
            let below: SmallVec<[FieldBelow<'_>; 4]> = fields
                .iter()
                .filter(|(_, path)| split_path(path).0 == part)
                .filter_map(|(index, path)| Some((*index, split_path(path).1?)))
                .collect();
            // One field alone has no other to agree with.
            let (false, 2.., Some(value)) = (is_seen, below.len(), after.get(part)) else { continue };
            let stored = before.and_then(|before| before.get(part));
            match (value.as_document(), value.as_array()) {
                (Some(document), _) => {
                    self.check_elements(stored.and_then(Value::as_document), document, &below)?;
                }
                (_, Some(array)) => self.check_array(stored.and_then(Value::as_array), array, &below)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn check_array(
        &self,
        before: Option<Document<'_>>,
        after: Document<'_>,
        fields: &[FieldBelow<'_>],
    ) -> Result<(), Rejection> {
        let stored: Vec<Value<'_>> = before.iter().flat_map(|before| before.values()).collect();
        let in_place = stored.len() == after.values().count();
        for (position, element) in after.values().enumerate() {
            let known = stored.get(position).filter(|known| in_place || **known == element);
            let is_stored = known == Some(&element) || stored.contains(&element);
            let Some(document) = element.as_document().filter(|_| !is_stored) else { continue };
            let earlier = known.and_then(|known| known.as_document());
            let mut presence = self.all_unknown();
            let mut changed = self.all_unknown();
            for (index, path) in fields {
                let new = held(document, path);
                let old = earlier.map(|earlier| held(earlier, path));
                presence.get_mut(*index).into_iter().for_each(|entry| *entry = Some(!new.is_empty()));
                let differs = old.map(|old| old != new);
                changed.get_mut(*index).into_iter().for_each(|entry| *entry = differs);
            }
            self.all_or_none("in an array element it changes", &changed)?;
            self.all_or_none("an array element has", &presence)?;
            self.check_elements(earlier, document, fields)?;
        }
        Ok(())
    }

    fn all_below(&self) -> SmallVec<[FieldBelow<'_>; 4]> {
        self.fields.iter().map(|field| field.as_str().as_bytes()).enumerate().collect()
    }

    fn all_unknown(&self) -> SmallVec<[Option<bool>; 4]> {
        SmallVec::from_elem(None, self.fields.len())
    }

    fn all_or_none(&self, what: &str, presence: &[Option<bool>]) -> Result<(), Rejection> {
        let those = |wanted: bool| -> Vec<&Path> {
            let fields = self.fields.iter().zip(presence);
            fields.filter(|(_, is_there)| **is_there == Some(wanted)).map(|(field, _)| field).collect()
        };
        let (there, missing) = (those(true), those(false));
        if there.is_empty() || missing.is_empty() {
            return Ok(());
        }
        Err(Rejection::new(format!("{what} {} without {}", list(&there), list(&missing)), HINT))
    }
}

/// The document has all of the fields or none, and so has each element of an array around several of them, as
/// [`Together::check_document`] demands. `None` if a path is too deep.
fn agreed(fields: &[Path]) -> Option<bson::Document> {
    let mut conditions = vec![all_or_none(fields)?];
    let roots: BTreeSet<&str> = fields.iter().map(Path::root).collect();
    for root in roots {
        let below: Vec<Path> = fields.iter().filter_map(|field| field.below(root.as_bytes())).collect();
        if below.len() > 1 {
            // Of a document only what arrays in it contain is new.
            let inner = agreed(&below)?;
            conditions.push(doc! {"properties": {root: {"allOf": [inner.clone()], "items": inner}}});
        }
    }
    Some(doc! {"allOf": conditions})
}

fn list(fields: &[&Path]) -> String {
    fields.iter().map(|field| format!("'{field}'")).collect::<Vec<_>>().join(", ")
}
