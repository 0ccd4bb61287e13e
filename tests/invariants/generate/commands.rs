//! The commands that carry statements, with their options.

use bson::{Bson, Document, doc};

use super::super::rules::Rule;
use super::super::values::{id, small_number};
use super::{Generator, TAGS};

impl Generator<'_> {
    fn batch(&mut self, mut element: impl FnMut(&mut Self) -> Document) -> Vec<Document> {
        let count = self.dice.pick(&[1, 1, 1, 1, 1, 2, 3]);
        (0..count).map(|_| element(self)).collect()
    }

    fn with_order(&mut self, mut command: Document) -> Document {
        if self.dice.percent(20) {
            command.insert("ordered", self.dice.percent(30));
        }
        command
    }

    pub(super) fn insert(&mut self) -> Document {
        let documents = self.batch(|this| {
            let mut document = if this.dice.percent(85) {
                doc! { "_id": id(this.dice) }
            } else {
                doc! {}
            };
            document.extend(this.written_document());
            document
        });
        self.with_order(doc! { "insert": "c", "documents": documents })
    }

    pub(super) fn delete(&mut self) -> Document {
        let deletes = self.batch(|this| {
            let mut element = doc! { "q": this.filter(false), "limit": this.dice.pick(&[0, 1, 1]) };
            this.options(&mut element);
            element
        });
        self.with_order(doc! { "delete": "c", "deletes": deletes })
    }

    pub(super) fn update(&mut self) -> Document {
        let updates = self.batch(|this| {
            this.identifiers.clear();
            let upsert = this.dice.percent(35);
            let (q, u) = this.change(upsert);
            let mut element = doc! { "q": q, "u": u };
            if upsert {
                element.insert("upsert", true);
            }
            if element.get("u").is_some_and(|u| matches!(u, Bson::Document(d) if d.keys().any(|k| k.starts_with('$'))))
                && this.dice.percent(25)
            {
                element.insert("multi", true);
            }
            this.array_filters(&mut element);
            this.options(&mut element);
            element
        });
        self.with_order(doc! { "update": "c", "updates": updates })
    }

    pub(super) fn find_and_modify(&mut self) -> Document {
        let upsert = self.dice.percent(35);
        let (query, update) = self.change(upsert);
        let mut command = doc! { "findAndModify": "c", "query": query };
        if self.dice.percent(40) {
            command.insert("sort", doc! { "_id": self.dice.pick(&[1, -1]) });
        }
        if self.dice.percent(15) {
            command.insert("remove", true);
        } else {
            command.insert("update", update);
            if upsert {
                command.insert("upsert", true);
            }
            if self.dice.percent(50) {
                command.insert("new", self.dice.percent(70));
            }
            self.array_filters(&mut command);
        }
        if self.dice.percent(8) {
            command.insert("fields", self.projection(&command));
        }
        self.options(&mut command);
        command
    }

    /// What a findAndModify returns of the document.
    fn projection(&mut self, command: &Document) -> Document {
        // Documented: the server rejects this beside the condition of some rules.
        let has_expression = |rule: &Rule| matches!(rule.name(), "queue" | "bounds" | "limits" | "bucket");
        let selects = command.get_document("query").is_ok_and(|query| query.contains_key(TAGS));
        match self.dice.below(4) {
            _ if selects && !self.rules.iter().any(has_expression) && self.dice.percent(70) => {
                doc! { format!("{TAGS}.$"): 1 }
            }
            0 => doc! { "_id": 0, self.path(): 1 },
            1 => doc! { self.path(): 0 },
            2 => doc! { "note": { "$elemMatch": { "$gte": 0 } }, "b": 0 },
            _ => doc! { self.path(): 1 },
        }
    }

    fn array_filters(&mut self, element: &mut Document) {
        if let Some(identifier) = self.identifiers.first() {
            let filter = doc! { identifier: { "$gte": small_number(self.dice) } };
            element.insert("arrayFilters", vec![filter]);
        }
    }

    fn options(&mut self, element: &mut Document) {
        if self.dice.percent(4) {
            element.insert("hint", self.dice.pick(&[Bson::from("_id_"), doc! { "_id": 1 }.into()]));
        }
        if self.dice.percent(6) {
            element.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
    }
}
