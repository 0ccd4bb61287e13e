//! Generated writes in front of a standalone, where no worker corrects copies: after every accepted write each
//! reference has its original's name.

use bson::{Bson, Document, doc};

use super::arrays::rule;
use support::driver::{all, connect, scaled};
use support::mongod::{Kind, Mongod};
use support::proxy::Docward;
use support::random::Random;

fn name(id: i32) -> String {
    format!("name {id}")
}

/// All parts of a statement use one hobby, so a name on another hobby's element is wrong.
struct Statement<'r> {
    random: &'r mut Random,
    id: i32,
}

/// One document of each form.
fn people() -> Vec<Document> {
    let element = |id: i32| doc! {"id": id, "n": name(id), "since": id};
    vec![
        doc! {"_id": 0, "hobbies": [element(0), element(1), element(2)]},
        doc! {"_id": 1, "hobbies": [element(2), element(0)]},
        doc! {"_id": 2, "hobbies": element(1)},
        doc! {"_id": 3, "hobbies": {"0": element(0), "id": 2, "n": name(2)}},
        doc! {"_id": 4, "hobbies": [5, element(1)], "old": {"id": 1}},
        doc! {"_id": 5, "old": 7},
    ]
}

impl Statement<'_> {
    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        self.random.pick(of).clone()
    }

    fn element(&mut self) -> Bson {
        let (id, name) = (self.id, name(self.id));
        self.one(&[
            doc! {"id": id, "n": &name}.into(),
            doc! {"id": id, "n": &name, "since": 1}.into(),
            doc! {"id": i64::from(id), "n": &name}.into(),
            doc! {"id": id}.into(),
            doc! {"id": id, "since": 2}.into(),
            doc! {"n": &name}.into(),
            doc! {"id": Bson::Null, "n": "?"}.into(),
            Bson::from(5),
        ])
    }

    fn value(&mut self) -> Bson {
        let (one, other) = (self.element(), self.element());
        match self.random.below(6) {
            0 => Bson::Array(vec![one, other]),
            1 => Bson::Array(vec![Bson::Array(vec![one]), other]),
            2 => Bson::Array(Vec::new()),
            3 => doc! {"0": one, "id": self.id, "n": name(self.id)}.into(),
            _ => one,
        }
    }

    /// A path, and the value written there.
    fn write(&mut self) -> (String, Bson) {
        let position = self.one(&["", ".0", ".1", ".$", ".$[]", ".$[x]", ".$[y]"]);
        let field = self.one(&["", ".id", ".id", ".n", ".n", ".since"]);
        let value = match field {
            "" if position.is_empty() => self.value(),
            "" => self.element(),
            ".id" => self.one(&[self.id.into(), self.id.into(), f64::from(self.id).into(), Bson::Null]),
            ".n" => name(self.id).into(),
            _ => 3.into(),
        };
        (format!("hobbies{position}{field}"), value)
    }

    fn update(&mut self) -> Document {
        match self.random.below(12) {
            0 => doc! {"hobbies": self.value(), "replaced": true},
            1 => {
                let (one, other) = (self.element(), self.element());
                let operator = self.one(&["$push", "$addToSet"]);
                let pushed = self.one(&[one.clone(), doc! {"$each": [one, other]}.into()]);
                doc! {operator: {"hobbies": pushed}}
            }
            2 => doc! {"$pull": {"hobbies": {"id": self.id}}},
            3 => doc! {"$pop": {"hobbies": 1}},
            4 => {
                let path =
                    self.one(&["hobbies", "hobbies.0", "hobbies.0.id", "hobbies.$", "hobbies.$[x].id", "hobbies.id"]);
                doc! {"$unset": {path: ""}}
            }
            5 => {
                let renamed =
                    self.one(&[("hobbies", "old"), ("old", "hobbies"), ("hobbies.id", "old"), ("old", "hobbies.id")]);
                doc! {"$rename": {renamed.0: renamed.1}}
            }
            6 => doc! {"$inc": {self.one(&["hobbies.id", "hobbies.0.id", "hobbies.$[].id"]): 1}},
            // A key in one position, and a name in another or the same.
            7 | 8 => {
                let positions = ["", ".0", ".1", ".$", ".$[x]", ".$[y]"];
                let (key, copy) = (self.one(&positions), self.one(&positions));
                doc! {"$set": {format!("hobbies{key}.id"): self.id, format!("hobbies{copy}.n"): name(self.id)}}
            }
            9 => {
                doc! {"$set": {self.one(&["hobbies.0.n", "hobbies.1.n", "hobbies.$.n", "hobbies.$[x].n"]): name(self.id)}}
            }
            _ => {
                let operator = self.one(&["$set", "$set", "$set", "$set", "$setOnInsert", "$max"]);
                let writes: Document = (0..=self.random.below(3)).map(|_| self.write()).collect();
                doc! {operator: writes, "$inc": {"writes": 1}}
            }
        }
    }

    fn filter(&mut self) -> Document {
        let id = self.id;
        let whole = doc! {"id": id, "n": name(id)};
        let condition = self.one(&[
            doc! {},
            doc! {},
            doc! {},
            doc! {},
            doc! {"hobbies.id": id},
            doc! {"hobbies.id": {"$in": [id]}},
            doc! {"$or": [{"hobbies.id": id}]},
            doc! {"hobbies": {"$elemMatch": {"id": id}}},
            doc! {"hobbies.0.id": id},
            doc! {"hobbies.id": id, "hobbies.n": name(id)},
            doc! {"hobbies": &whole},
            doc! {"hobbies": [&whole]},
            doc! {"hobbies": {"$eq": [{"id": id}]}},
            doc! {"hobbies.since": {"$gt": 0}},
            doc! {"hobbies.id": id, "hobbies.since": {"$gt": 0}},
        ]);
        let mut filter = doc! {"_id": self.random.below(7) as i32};
        filter.extend(condition);
        filter
    }

    fn command(&mut self) -> Document {
        let (q, u) = (self.filter(), self.update());
        let mut statement = doc! {"q": q, "u": &u, "upsert": self.random.below(3) == 0};
        // The server rejects arrayFilters for identifiers that the update does not use.
        let text = u.to_string();
        let used = [
            ("$[x]", doc! {"x.id": self.id}),
            ("$[x]", doc! {"x.since": {"$gt": 0}}),
            ("$[y]", doc! {"y.id": self.id}),
        ];
        let mut filters: Vec<Document> = Vec::new();
        let start = self.random.below(2);
        for (identifier, filter) in &used[start..] {
            let taken = filters.iter().any(|other| other.keys().next().unwrap()[..1] == identifier[2..3]);
            if text.contains(identifier) && !taken {
                filters.push(filter.clone());
            }
        }
        if !filters.is_empty() {
            statement.insert("arrayFilters", filters);
        }
        doc! {"update": "people", "updates": [statement]}
    }
}

/// The references in a document whose name differs from their hobby's.
fn wrong(person: &Document) -> bool {
    let wrong = |holder: &Bson| {
        let Bson::Document(holder) = holder else { return false };
        let id = match holder.get("id") {
            Some(Bson::Int32(id)) => *id,
            Some(Bson::Int64(id)) => *id as i32,
            Some(Bson::Double(id)) => *id as i32,
            _ => return false,
        };
        holder.get_str("n").ok() != Some(&name(id))
    };
    match person.get("hobbies") {
        Some(Bson::Array(elements)) => elements.iter().any(wrong),
        Some(one) => wrong(one),
        None => false,
    }
}

#[tokio::test]
async fn accepted_writes_leave_references_with_the_right_names() {
    let mongod = Mongod::start(Kind::Standalone);
    let docward = Docward::start(&mongod, &rule("d", ""));
    let direct = mongod.client().await.database("d");
    let through = connect(&docward.address(), "retryWrites=false").await.database("d");
    let seed = std::env::var("DOCWARD_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let (mut passed, mut rejected, mut failed) = (0, 0, 0);
    for round in 0..scaled(2000) {
        if round % 10 == 0 {
            direct.collection::<Document>("people").delete_many(doc! {}).await.unwrap();
            direct.collection("people").insert_many(people()).await.unwrap();
        }
        let id = random.below(3) as i32;
        let mut statement = Statement { random: &mut random, id };
        let before = all(&direct, "people").await;
        let command = statement.command();
        let reply = through.run_command(command.clone()).await.unwrap();
        match reply
            .get_array("writeErrors")
            .ok()
            .map(|errors| errors[0].as_document().unwrap().get_i32("code").unwrap())
        {
            None => passed += reply.get_i32("n").unwrap(),
            Some(121) => rejected += 1,
            Some(_) => failed += 1,
        }
        for person in all(&direct, "people").await {
            assert!(!wrong(&person), "seed {seed}, round {round}: {command}\nbefore: {before:?}\nafter: {person}");
        }
    }
    assert!(passed > 100 && rejected > 100 && failed > 10, "{passed} passed, {rejected} rejected, {failed} failed");
}
