//! Stored documents, and documents that statements insert.

use bson::{Bson, Document, doc};

use super::super::case::first;
use super::super::values::{any, put, take};
use super::Generator;

impl Generator<'_> {
    pub(super) fn stored(&mut self) -> Vec<Document> {
        let count = self.dice.pick(&[0, 1, 1, 2, 3]);
        let mut documents: Vec<Document> = (1..=count)
            .map(|id: i32| {
                let mut document = self.document(35);
                if self.dice.percent(90) {
                    for rule in self.rules {
                        rule.tidy(self.dice, &mut document);
                    }
                }
                self.disturb(&mut document);
                document.remove("_id");
                let mut whole = doc! { "_id": id };
                whole.extend(document);
                whole
            })
            .collect();
        for rule in self.rules {
            rule.tidy_all(self.dice, &mut documents);
        }
        self.distinguish(&mut documents);
        documents
    }

    /// Gives documents different values in the field with the unique index.
    fn distinguish(&self, documents: &mut [Document]) {
        let Some(field) = self.unique else { return };
        for (index, document) in documents.iter_mut().enumerate().skip(1).filter(|(_, one)| one.contains_key(field)) {
            document.insert(field, format!("{field} {index}"));
        }
    }

    /// Turns it into a document from before the rule, or from another application.
    pub(super) fn disturb(&mut self, document: &mut Document) {
        if !self.dice.percent(20) {
            return;
        }
        let path = self.path();
        match self.dice.below(5) {
            0 => drop(take(document, &path)),
            1 => put(document, &path, Bson::Null),
            2 => put(document, first(&path), any(self.dice, 1)),
            3 => put(document, first(&path), Bson::Array(vec![Bson::Document(self.document(30))])),
            _ => put(document, &path, any(self.dice, 2)),
        }
    }

    pub(super) fn document(&mut self, percent: usize) -> Document {
        let mut document = doc! {};
        let mut paths = self.paths.clone();
        paths.sort();
        paths.dedup();
        for path in paths {
            if self.dice.percent(percent) && path != "_id" && !path.ends_with(".x") {
                let value = self.value(&path);
                put(&mut document, &path, value);
            }
        }
        document
    }

    pub(super) fn written_document(&mut self) -> Document {
        let percent = self.dice.pick(&[10, 40, 70]);
        let mut document = self.document(percent);
        if self.dice.percent(40) {
            for rule in self.rules {
                rule.tidy(self.dice, &mut document);
            }
        }
        document.remove("_id");
        document
    }
}
