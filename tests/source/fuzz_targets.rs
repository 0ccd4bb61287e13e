//! The short run of the fuzz targets (`make fuzz` is the long one), with the files of `fuzz/corpus`, well-formed
//! seeds, and mutations of both. Checks that there are no panics, that time and memory are bounded, and each target's
//! own properties.
//!
//! Seeded, so that every run is the same; takes some seconds in all. The properties that need a server are elsewhere
//! (`protocol`, `retries`).

#[path = "../../fuzz/targets/mod.rs"]
#[allow(unreachable_pub, reason = "a module of the fuzz targets")]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use bson::{Bson, Document as Bson_};
use docward::command::{Command, EncodeOptions, StatementPart, WriteBatch, WriteForm, classify};
use docward::wire::compressed::{Compressor, compress};
use support::cpu_time::CpuTimer;
use support::frame::{Frame, Message as Made};
use support::random::Random;
use targets::cost::{self, most_allocated};
use targets::growth::{FAMILIES, Family};
use targets::plans::RULES;
use targets::{Target, seeds};

pub(super) use targets::load;

/// How long each target runs.
const BUDGET: Duration = Duration::from_secs(3);
/// Upper bound for one malformed rule file; it takes a fraction of it.
const TOO_LONG: Duration = Duration::from_secs(2);

#[test]
fn every_target_holds_for_its_corpus_its_seeds_and_their_mutations() {
    for (number, target) in targets::ALL.iter().enumerate() {
        fuzz(*target, number as u64 + 1);
    }
}

/// Calls `target` with all known inputs, then with mutations until the budget is used.
fn fuzz(target: Target, seed: u64) {
    let (name, _) = target;
    let mut seeds = seeds_of(name);
    write_seeds(name, &seeds);
    seeds.extend(corpus(name));
    let mut random = Random(seed);
    let started = Instant::now();
    let mut count = 0;
    let mut slowest = Duration::ZERO;
    while started.elapsed() < BUDGET || count < seeds.len() {
        let input = match seeds.get(count) {
            Some(seed) => seed.clone(),
            None => {
                let seed = random.pick(&seeds).clone();
                mutated(&mut random, name, &seed, &seeds)
            }
        };
        slowest = slowest.max(cost::run(target, &input, cost::UNOPTIMISED));
        count += 1;
    }
    eprintln!("{name}: {count} inputs, {} of them known, the slowest took {slowest:?}", seeds.len());
}

/// Four times the input takes at most about four times the CPU time and memory, not sixteen times: the length of a
/// message or file bounds its cost.
#[test]
fn work_is_proportional_to_length() {
    // Enough work for an unoptimised build, so that the clock's resolution does not matter.
    const ENOUGH: Duration = Duration::from_millis(50);
    const MOST: usize = 1 << 19;
    let mut wrong = Vec::new();
    for Family { target, name, grown } in FAMILIES {
        let (_, run) = targets::ALL.iter().find(|(known, _)| known == target).unwrap();
        let allocated = |count: usize| {
            let input = grown(count);
            let allocated = measure(|| run(&input)).bytes_total;
            let most = most_allocated(target, input.len());
            assert!(
                allocated <= most,
                "{target}, {name}: {allocated} bytes allocated for {count}, {most} are the most"
            );
            allocated
        };
        // Allocated bytes are exact, so small inputs are enough.
        let (few, many) = (allocated(500), allocated(2000));
        if many > 5 * few + (1 << 16) {
            wrong.push(format!("{target}, {name}: {few} bytes allocated for 500, {many} for 2000"));
        }
        let cost = |count: usize| {
            let input = grown(count);
            let once = || {
                let one = CpuTimer::start();
                run(&input);
                one.elapsed()
            };
            (0..3).map(|_| once()).min().unwrap()
        };
        let mut count = 500;
        let mut before = cost(count);
        while before < ENOUGH && grown(4 * count).len() < MOST {
            count *= 2;
            before = cost(count);
        }
        let mut after = cost(4 * count);
        let is_more = |before: Duration, after: Duration| after > 9 * before + Duration::from_millis(20);
        // Other processes can use the caches meanwhile; what is more than proportional is so each time.
        for _ in 0..2 {
            if is_more(before, after) {
                (before, after) = (cost(count), cost(4 * count));
            }
        }
        eprintln!("{target}, {name}: {before:?} for {count}, {after:?} for {}", 4 * count);
        if is_more(before, after) {
            wrong.push(format!("{target}, {name}: {before:?} for {count}, {after:?} for {}", 4 * count));
        }
    }
    assert!(wrong.is_empty(), "more than proportional:\n{}", wrong.join("\n"));
}

/// The offset of the frame in a target's input; `None` if it has none.
fn frame_at(name: &str) -> Option<usize> {
    match name {
        "frame" | "compressed" | "command" => Some(0),
        "plan" => Some(8),
        _ => None,
    }
}

/// Well-formed inputs to start with.
fn seeds_of(name: &str) -> Vec<Vec<u8>> {
    let frames = seeds::frames();
    match name {
        "frame" => frames.into_iter().chain(seeds::replies()).collect(),
        "compressed" => packed(&frames),
        "proxy_header" => {
            let line = b"PROXY TCP6 2001:db8::7 2001:db8::1 5000 27018\r\n".to_vec();
            let addresses = [192, 0, 2, 7, 10, 0, 0, 1, 19, 136, 105, 138];
            vec![line, [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()]
        }
        "command" => frames,
        "plan" => frames.iter().zip(1u64..).map(|(frame, n)| [&n.to_le_bytes()[..], frame].concat()).collect(),
        "document" => frames.iter().filter_map(|frame| body(frame)).collect(),
        "rules" => rule_files(),
        "shell" => shell_texts(),
        "traffic" => seeds::traffic(),
        other => panic!("target {other} has no seeds"),
    }
}

/// Compresses every third frame, with each compressor in turn.
fn packed(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let compressors = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd];
    let pairs = frames.iter().zip(compressors.iter().cycle());
    pairs.filter_map(|(frame, compressor)| compress(frame, (*compressor).into())).collect()
}

/// The body of a frame that starts with it.
fn body(frame: &[u8]) -> Option<Vec<u8>> {
    let length = i32::from_le_bytes(frame.get(21..25)?.try_into().unwrap());
    frame.get(21..21 + usize::try_from(length).ok()?).map(<[u8]>::to_vec)
}

fn rule_files() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let files = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    files.chain([RULES.as_bytes().to_vec(), b"version: 1\nrules: [[[[{a: &x [*x]}]]]]".to_vec()]).collect()
}

fn shell_texts() -> Vec<Vec<u8>> {
    let texts = include_str!("../mongosh/corpus.txt").lines().filter(|line| !line.starts_with('#'));
    texts.map(|text| text.as_bytes().to_vec()).collect()
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Writes the seeds as files for the long run, which starts with them.
fn write_seeds(name: &str, seeds: &[Vec<u8>]) {
    let Some(folder) = std::env::var_os("DOCWARD_FUZZ_SEEDS") else { return };
    let folder = Path::new(&folder).join(name);
    fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
    }
}

/// An input of target `name` with a few changes that parsers often handle wrongly.
fn mutated(random: &mut Random, name: &str, bytes: &[u8], others: &[Vec<u8>]) -> Vec<u8> {
    const NUMBERS: [i32; 9] = [0, 1, 4, 5, -1, i32::MAX, i32::MIN, 48_000_000, 255];
    let mut bytes = if bytes.is_empty() { vec![0] } else { bytes.to_vec() };
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(9) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.next_number() as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.next_number() as u8),
            4 if bytes.len() > 1 => drop(bytes.remove(at)),
            5 => {
                let number = random.pick(&NUMBERS).to_le_bytes();
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            6 => {
                let other = random.pick(others);
                let from = random.below(other.len());
                let to = (from + random.below(40)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            7 => {
                let to = (at + random.below(60)).min(bytes.len());
                let copy = bytes[at..to].to_vec();
                bytes.splice(at..at, copy);
            }
            // A type tag or a name's first letter.
            _ => bytes[at] = *random.pick(b"\x01\x02\x03\x04\x05\x07\x08\x0a\x0b\x0e\x10\x11\x12\xff\x7f$_qud"),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    // Most inputs get a valid header, so that the code behind the header check is reached.
    if let Some(frame) = frame_at(name).and_then(|at| bytes.get_mut(at..))
        && frame.len() >= 16
        && random.below(4) > 0
    {
        let length = i32::try_from(frame.len()).unwrap();
        frame[..4].copy_from_slice(&length.to_le_bytes());
    }
    bytes
}

#[test]
fn unchanged_messages_are_written_back_byte_for_byte() {
    for frame in seeds::frames() {
        let Ok(command) = Command::parse(&frame) else { continue };
        let Some(form) = WriteForm::for_class(classify(command.name.as_bytes())) else { continue };
        let batch = WriteBatch::parse(&command, form).unwrap();
        let before = content(&frame, form);
        assert_eq!(content(&batch.encode(&command, batch.statements.iter()), form), before);
        let part = |index: usize| StatementPart { index, statement: &batch.statements[index] };
        let parts: Vec<StatementPart<'_, '_>> = (0..batch.statements.len()).map(part).collect();
        let mut whole = content(&batch.encode_part(&command, &parts, EncodeOptions::default()), form);
        let ids = whole.0.remove("stmtIds");
        let mut before = before;
        let own_ids = before.0.remove("stmtIds");
        if own_ids.is_some() {
            assert_eq!(ids, own_ids);
        }
        assert_eq!(whole, before);
        for index in 0..batch.statements.len() {
            let (body, lists) = content(&batch.encode_part(&command, &[part(index)], EncodeOptions::default()), form);
            if let Some(list) = form.list() {
                assert_eq!(lists[list], before.1[list][index..=index]);
            }
            assert_eq!(body.get("lsid"), before.0.get("lsid"));
        }
    }
}

type Lists = std::collections::BTreeMap<String, Vec<Bson_>>;

/// A message's content, parsed by the bson crate: its body, and its lists separately, in whichever form they came.
fn content(frame: &[u8], form: WriteForm) -> (Bson_, Lists) {
    let message = Made::parse(&Frame::read(&mut &*frame).unwrap().unwrap());
    let mut body = message.body().clone();
    let lists = form.list().into_iter().chain((form == WriteForm::BulkWrite).then_some("nsInfo"));
    let lists = lists.map(|list| (list.to_owned(), message.documents(list))).collect();
    for list in ["documents", "updates", "deletes", "ops", "nsInfo"] {
        body.remove(list);
    }
    assert!(body.get("$db").is_some_and(|db| matches!(db, Bson::String(_))));
    (body, lists)
}

#[test]
fn deep_nesting_is_rejected_quickly() {
    for nasty in
        ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(100_000), "&a [*a]".to_owned(), "\0".repeat(1000)]
    {
        let started = CpuTimer::start();
        assert!(load(&nasty).is_err());
        assert!(started.elapsed() < TOO_LONG, "{:?}", started.elapsed());
    }
}
