//! The checks of the fuzz targets on their corpora, and on random changes of them: so many inputs, and each with a limit of what
//! it may allocate. `tests/fuzz/run` runs them for longer, in libFuzzer.

use std::{fs, path::Path};

use crate::{counting_allocator::measure_work, seeded_random::SeededRandom};

#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the crate of the fuzz targets compiles the same files")]
mod fuzz_checks;

/// Random changes of each input; a page takes some milliseconds from decoding to its answers, and more to all screens.
const CHANGES: u64 = 200;
const PAGE_CHANGES: u64 = 50;
const SCREEN_CHANGES: u64 = 1;

/// The most bytes that a check may allocate in all: a page is judged for some seconds, and its answers are written.
const MAX_BYTES: u64 = 64 << 20;

/// The inputs of a corpus, by name.
fn read_corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let target = if target == "page_to_screen" { "page_to_answer" } else { target };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpora").join(target);
    let mut inputs: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read(&path).unwrap())
        })
        .collect();
    inputs.sort();
    assert!(inputs.len() > 2, "{target} has {} inputs", inputs.len());
    inputs
}

/// Changes an input in one to four places: a byte is another, is added or is lost, or a part of the other input is inserted.
fn change_input(input: &mut Vec<u8>, other: &[u8], random: &mut SeededRandom) {
    for _ in 0..=random.below(3) {
        let at = random.below(input.len() as u64 + 1) as usize;
        match random.below(5) {
            0 => input.insert(at, random.below(256) as u8),
            1 => input.truncate(at),
            2 if at < input.len() => drop(input.remove(at)),
            3 => {
                let from = random.below(other.len() as u64 + 1) as usize;
                let to = (from + random.below(40) as usize).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            _ if at < input.len() => input[at] = random.below(256) as u8,
            _ => {}
        }
    }
}

#[test]
fn corpora_and_changes_of_them_break_no_fuzz_target() {
    for &(target, check) in fuzz_checks::CHECKS {
        let corpus = read_corpus(target);
        let changes = match target {
            "page_to_answer" => PAGE_CHANGES,
            "page_to_screen" => SCREEN_CHANGES,
            _ => CHANGES,
        };
        let mut worst = 0;
        for (number, (name, input)) in corpus.iter().enumerate() {
            let other = &corpus[(number + 1) % corpus.len()].1;
            for seed in 0..=changes {
                let mut input = input.clone();
                if seed > 0 {
                    let mut random = SeededRandom::new(seed << 8 | number as u64);
                    change_input(&mut input, other, &mut random);
                }
                // What a check asserts says what is wrong; this says with which input.
                let outcome = std::panic::catch_unwind(|| measure_work(|| check(&input)).bytes);
                let shown = input.escape_ascii();
                let bytes = outcome.unwrap_or_else(|_| panic!("{target}, {name}: {shown}"));
                assert!(bytes <= MAX_BYTES, "{target}, {name}: {bytes} B for {shown}");
                worst = worst.max(bytes);
            }
        }
        println!("{target}: {worst} B at most");
    }
}
