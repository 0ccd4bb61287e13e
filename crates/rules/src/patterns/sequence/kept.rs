//! Writes a replacement as a pipeline that keeps the number of the stored document.
//!
//! The server evaluates `$field` on the document before the replacement. So docward need not read the number first,
//! which could change in between.

use crate::command::Modification;
use crate::document::{ArrayWriter, CowDocument, Document, OwnedValue, Path, Value, ValueSlot, Writer, edit};
use crate::patterns::literal;

/// Returns the same replacement, except that the stored value at `path` stays and a document without it gets `number`.
/// `None` if the modification is not a replacement.
pub(super) fn keeping<'a>(
    modification: &Modification<'a>,
    path: &Path,
    number: Option<i64>,
) -> Option<Modification<'a>> {
    let (stage, meaning) = match modification {
        Modification::Replacement(document) => {
            let stage = stage(path, number, |slot| literal::write(slot, document.as_document()));
            (stage, modification.clone())
        }
        Modification::Pipeline(pipeline) if matches!(pipeline.meaning, Modification::Replacement(_)) => {
            let [only] = pipeline.stages() else { return None };
            let replaced = only.as_document().get("$replaceWith")?;
            (stage(path, number, |slot| slot.value(replaced)), pipeline.meaning.clone())
        }
        _ => return None,
    };
    let meaning = match (meaning, number) {
        (Modification::Replacement(document), Some(number)) => inserting(document, path, number),
        (meaning, _) => meaning,
    };
    Some(Modification::stage(stage, meaning, modification.may_keep()))
}

/// Returns the document that an upsert by replacement inserts, with `number`.
fn inserting<'a>(document: CowDocument<'a>, path: &Path, number: i64) -> Modification<'a> {
    let number = OwnedValue::integer(number);
    Modification::Replacement(CowDocument::from_writer(edit::set(document.as_document(), path, number.as_value())))
}

/// Writes `{$replaceWith: ...}`: the new document with the kept number in it, if there is one.
fn stage<'a>(path: &Path, number: Option<i64>, new: impl FnOnce(ValueSlot<'_>)) -> CowDocument<'a> {
    CowDocument::build(|w| {
        w.nested("$replaceWith", |w| {
            w.nested("$let", |w| {
                w.nested("vars", |w| {
                    new(w.slot("new"));
                    w.nested("kept", |w| kept(w, path.as_str(), number));
                });
                w.nested("in", |w| new_with_kept(w, path.as_str()));
            });
        });
    })
}

/// Writes the variable `new` with the variable `kept` at `path` in it, unless `kept` is missing.
fn new_with_kept(w: &mut Writer<'_>, path: &str) {
    w.array("$cond", |a| {
        a.nested(|w| {
            w.array("$eq", |a| {
                a.nested(|w| w.string("$type", "$$kept"));
                a.string("missing");
            });
        });
        a.string("$$new");
        a.nested(|w| with_number(w, "$$new", path));
    });
}

/// Writes an expression for the stored value. Null and values in elements of an array count as missing.
fn kept(w: &mut Writer<'_>, path: &str, number: Option<i64>) {
    w.array("$ifNull", |a| {
        match path.rsplit_once('.') {
            None => a.string(format!("${path}")),
            Some((parent, _)) => in_document(a, parent, path),
        }
        match number {
            Some(number) => a.slot().integer(number),
            None => a.string("$$REMOVE"),
        }
    });
}

fn in_document(a: &mut ArrayWriter<'_>, parent: &str, path: &str) {
    a.nested(|w| {
        w.array("$cond", |a| {
            a.nested(|w| {
                w.array("$eq", |a| {
                    a.nested(|w| w.string("$type", format!("${parent}")));
                    a.string("object");
                });
            });
            a.string(format!("${path}"));
            a.string("$$REMOVE");
        });
    });
}

/// Writes the expression `base` with the number at `path` in it.
fn with_number(w: &mut Writer<'_>, base: &str, path: &str) {
    w.array("$mergeObjects", |a| {
        a.string(base);
        a.nested(|w| match path.split_once('.') {
            None => w.string(path, "$$kept"),
            Some((name, below)) => w.nested(name, |w| with_number_inside(w, &format!("{base}.{name}"), below)),
        });
    });
}

/// Writes the expression `base` with the number inside it if it is a document or missing. A late write of a `timestamps`
/// rule has the stored document as its new one, in which any value may be there.
fn with_number_inside(w: &mut Writer<'_>, base: &str, path: &str) {
    w.array("$cond", |a| {
        document_or_missing(a, base);
        a.nested(|w| with_number(w, base, path));
        a.string(base);
    });
}

/// Writes the condition that an expression is a document or missing.
fn document_or_missing(a: &mut ArrayWriter<'_>, expression: &str) {
    a.nested(|w| {
        w.array("$in", |a| {
            a.nested(|w| w.string("$type", expression));
            a.array(|a| {
                a.string("object");
                a.string("missing");
            });
        });
    });
}

/// Returns a stage that sets `number` in a document without one. It leaves other values on the path as they are.
pub(super) fn missing<'a>(path: &Path, number: i64) -> CowDocument<'a> {
    let path = path.as_str();
    CowDocument::build(|w| {
        w.nested("$set", |w| match path.split_once('.') {
            None => w.nested(path, |w| or_number(w, path, number)),
            Some((root, _)) => w.nested(root, |w| with_missing(w, path, root.len(), number)),
        });
    })
}

fn or_number(w: &mut Writer<'_>, path: &str, number: i64) {
    w.array("$ifNull", |a| {
        a.string(format!("${path}"));
        a.slot().integer(number);
    });
}

/// Writes the field whose name ends at `end` of the path, with the number below it if it is a document or missing.
fn with_missing(w: &mut Writer<'_>, path: &str, end: usize, number: i64) {
    let (field, below) = (path.get(..end).unwrap_or(path), path.get(end + 1..).unwrap_or_default());
    let name = below.split('.').next().unwrap_or(below);
    let inner = end + 1 + name.len();
    w.array("$cond", |a| {
        document_or_missing(a, &format!("${field}"));
        a.nested(|w| {
            w.array("$mergeObjects", |a| {
                a.string(format!("${field}"));
                a.nested(|w| {
                    w.nested(name, |w| match inner == path.len() {
                        true => or_number(w, path, number),
                        false => with_missing(w, path, inner, number),
                    });
                });
            });
        });
        a.string(format!("${field}"));
    });
}

/// Returns the operators without `path` in their `$set`. `None` if `$set` does not name it.
pub(super) fn without_set<'a>(operators: Document<'_>, path: &Path) -> Option<CowDocument<'a>> {
    let name = path.as_str();
    operators.get("$set").and_then(Value::as_document)?.get(name)?;
    Some(CowDocument::build(|w| {
        for operator in operators.elements() {
            match operator.value.as_document().filter(|_| operator.key == b"$set") {
                Some(fields) => w.nested("$set", |w| {
                    fields.elements().filter(|field| field.key != name.as_bytes()).for_each(|field| w.element(field));
                }),
                None => w.element(operator),
            }
        }
    }))
}
