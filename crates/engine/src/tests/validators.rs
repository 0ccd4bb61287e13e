//! Errors of validators that hold rules, in the reply to each kind of command.

use bson::{Document, doc};

use super::super::explain_validators;
use super::{documents, frame, rules};

/// An error as the server reports it for clauses with these details.
fn error(clauses: &[Document]) -> Document {
    let failed: Vec<Document> = clauses.iter().map(|clause| doc! {"index": 1, "details": clause.clone()}).collect();
    let details = doc! {"operatorName": "$and", "clausesNotSatisfied": failed};
    doc! {"code": 121, "errmsg": "Document failed validation", "errInfo": {"failingDocumentId": 1, "details": details}}
}

fn schema(title: &str) -> Document {
    doc! {"operatorName": "$jsonSchema", "title": title, "description": "it is small"}
}

fn explained(reply: &Document) -> Option<Document> {
    let rules = rules(&[("shop.books", "bounds: { field: n, min: 0 }"), ("shop.books", "limits: { document: 100B }")]);
    explain_validators(&frame(reply, "", &[], 0), &rules).map(|reply| documents(&reply).0)
}

#[test]
fn the_first_rule_that_a_clause_names_explains_the_error() {
    let expression =
        doc! {"$expr": {"$let": {"vars": {"rule": "docward: rule-1", "meaning": "it is short"}, "in": false}}};
    let own = [
        schema("of the application"),
        doc! {"operatorName": "$expr", "specifiedAs": expression},
        schema("docward: rule-0"),
    ];
    for (clauses, rule, meaning) in
        [(&own[1..], "rule-1", "it is short"), (&own, "rule-1", "it is short"), (&own[2..], "rule-0", "it is small")]
    {
        let mut error = error(clauses);
        let text =
            format!("docward rule '{rule}' rejects this document: the collection's validator demands that {meaning}");
        error.insert("index", 0);
        let untouched = doc! {"index": 1, "code": 11000, "errmsg": "docward: duplicate"};
        for reply in [
            doc! {"n": 1, "writeErrors": [error.clone(), untouched.clone()], "ok": 1.0},
            doc! {"cursor": {"id": 0_i64, "firstBatch": [error.clone(), untouched.clone()], "ns": "admin.$cmd.bulkWrite"}, "ok": 1.0},
        ] {
            let explained = explained(&reply).unwrap();
            let errors = explained.get_document("cursor").map_or(&explained, |cursor| cursor);
            let errors = errors.get_array("writeErrors").or(errors.get_array("firstBatch")).unwrap();
            let [first, second] = [0, 1].map(|index| errors[index].as_document().unwrap());
            assert!(first.get_str("errmsg").unwrap().starts_with(&text), "{first}");
            let info = first.get_document("errInfo").unwrap();
            assert_eq!(info.get_document("docward").unwrap().get_str("rule").unwrap(), rule);
            assert_eq!(info.get("details"), error.get_document("errInfo").unwrap().get("details"));
            assert_eq!(second, &untouched);
        }
        let mut whole = doc! {"ok": 0.0};
        whole.extend(error);
        assert!(explained(&whole).unwrap().get_str("errmsg").unwrap().starts_with(&text));
    }
}

#[test]
fn other_replies_stay_as_they_are() {
    let mut known = error(&[schema("docward: rule-0")]);
    known.get_document_mut("errInfo").unwrap().insert("docward", doc! {"rule": "rule-0"});
    let mut other_code = error(&[schema("docward: rule-0")]);
    other_code.insert("code", 2);
    for one in [error(&[schema("docward: removed")]), error(&[schema("rule-0")]), known, other_code] {
        assert_eq!(explained(&doc! {"n": 0, "writeErrors": [one.clone()], "ok": 1.0}), None, "{one}");
    }
    // An error that an application has stored is what it reads.
    let stored = error(&[schema("docward: rule-0")]);
    let read = doc! {"cursor": {"id": 0_i64, "firstBatch": [stored], "ns": "shop.log"}, "ok": 1.0};
    assert_eq!(explained(&read), None);
}
