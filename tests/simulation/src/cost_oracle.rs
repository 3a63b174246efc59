//! Cost oracle: the work of parsers, of ingest and of questions is at most proportional to their input, whatever it holds.
//!
//! Work is what they allocate, in bytes: the same on every machine, however busy. Inputs are made of real lines and of
//! fragments that were chosen to be hard, alone, mixed, and many times over.

use std::{path::Path, time::Duration};

use gaunt_api::{Answer, Filter, Question, Subject, json_diff};
use gaunt_console::drawn_screens::{all_screens, draw_screen};
use gaunt_engine::{Engine, EngineOptions, record::decode_segment};
use gaunt_schema::{
    Batch, Delivery, ScrapeTarget, TargetId, UnixMs,
    frame::{FrameDecodeState, FrameDecoder},
    text::{PageLimits, TemplateCache, TemplateState, decode_open_metrics, decode_page},
};
use gaunt_scrape::{
    EndpointDefaults, EndpointList, TargetListNotation, expand_host_list, parse_addresses,
};
use gaunt_site::{parse_jobs, parse_topology};

use crate::{
    counting_allocator::measure_work,
    invariants::{QUESTIONS, named_questions},
    seeded_random::SeededRandom,
};

/// Bytes of the inputs.
const SIZES: [usize; 2] = [8 << 10, 64 << 10];

/// Random mixtures of fragments for each parser and size.
const MIXTURES: u64 = 3;

/// Fragments of exposition pages.
const PAGE: &[&str] = &[
    "a{b=\"",
    "\"} 1\n",
    "a{b=\"\\\\\\\"\\n\"} 1 2\n",
    "{",
    "}",
    "\"",
    "\\",
    ",",
    "=",
    "#",
    "\n",
    "# EOF\n",
    "# TYPE a counter\n",
    "# HELP a \\n\n",
    "# UNIT a_seconds seconds\n",
    "a 1e308\n",
    "a NaN\n",
    "a{} 1\n",
    "gaunt_gpu_power_watts{gpu=\"0\"} 1\n",
    "gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_power_watts\",reason=\"lost\"} 1\n",
    "a_bucket{le=\"1\"} 1 # {trace=\"x\"} 1\n",
    "a 00000000000000000000000000000000000001\n",
    "é",
    "\u{202e}",
    "\u{1b}[2J",
];

/// Fragments of host lists, filters, and of files in the notations of topology, jobs and discovery.
const LISTS: &[&str] = &[
    "a[1-9]",
    "a[1-99999]",
    "[",
    "]",
    ",",
    "n[001-128,200]",
    "r[1-2]c[01-02]",
    "http://",
    ":",
    "/",
    "-",
    "@",
    "a=",
    " ",
];
const FILTERS: &[&str] = &[
    "node=",
    "power>",
    "1 W",
    "and ",
    "or ",
    "not ",
    "(",
    ")",
    "\"",
    "\\",
    "/a.*/",
    "sort ",
    "columns node,",
    "~",
    "%",
    "limit 5 ",
];
const NOTATIONS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"a\":",
    "1,",
    "- ",
    "a: &x [*x]\n",
    "SwitchName=s[1-99] Nodes=n[1-9]\n",
    "[[nodes]]\n",
    "a = 1\n",
    "\"jobs\":[",
    "{\"job_id\":1,\"nodes\":\"n[1-9999]\"},",
    "\n  ",
    "'",
    "\\u0000",
    "{\"targets\":[\"a:1\"],\"labels\":{}},",
];

/// A parser, and the most bytes that it may allocate: so many for each byte of input, and for any input.
struct CostLimit {
    name: &'static str,
    fragments: &'static [&'static str],
    for_each: u64,
    for_any: u64,
    parse: fn(&str),
}

/// A list of names may be expanded up to its own limit, whatever it is written with.
const EXPANDED: u64 = 4 << 20;

/// The limits are about twice what was measured. A page's table of series is sized for its lines, blank ones too.
const LIMITS: &[CostLimit] = &[
    CostLimit {
        name: "page",
        fragments: PAGE,
        for_each: 64,
        for_any: 256 << 10,
        parse: |text| {
            drop(decode_page(text.as_bytes(), &PageLimits::default()));
        },
    },
    CostLimit {
        name: "open_metrics",
        fragments: PAGE,
        for_each: 24,
        for_any: 256 << 10,
        parse: |text| {
            drop(decode_open_metrics(text.as_bytes(), &PageLimits::default()));
        },
    },
    CostLimit {
        name: "template",
        fragments: PAGE,
        for_each: 80,
        for_any: 512 << 10,
        parse: |text| {
            let (cache, mut state) = (TemplateCache::new(1 << 20), TemplateState::default());
            for _ in 0..2 {
                drop(cache.decode_page(&mut state, text.as_bytes(), &PageLimits::default()));
            }
        },
    },
    CostLimit {
        name: "frame",
        fragments: PAGE,
        for_each: 24,
        for_any: 256 << 10,
        parse: |text| {
            let frame = [b"GNTF\x01".as_slice(), text.as_bytes()].concat();
            let decoder = FrameDecoder::new(1 << 20);
            drop(decoder.decode_frame(
                &mut FrameDecodeState::default(),
                &frame,
                &PageLimits::default(),
            ));
        },
    },
    CostLimit {
        name: "segment",
        fragments: PAGE,
        for_each: 24,
        for_any: 256 << 10,
        parse: |text| {
            let bytes = [b"gauntrec\x01\0\0\0".as_slice(), text.as_bytes()].concat();
            if let Ok(segment) = decode_segment(&bytes) {
                segment
                    .blocks
                    .iter()
                    .for_each(|block| drop(block.decode_deliveries(&PageLimits::default())));
            }
        },
    },
    CostLimit {
        name: "host_list",
        fragments: LISTS,
        for_each: 64,
        for_any: 1 << 20,
        parse: |text| {
            drop(expand_host_list(text, 500));
            drop(EndpointList::new(EndpointDefaults::default()).add_list(text, &"a flag".into()));
        },
    },
    CostLimit {
        name: "filter",
        fragments: FILTERS,
        for_each: 64,
        for_any: 256 << 10,
        parse: |text| {
            for subject in Subject::ALL {
                drop(Filter::parse(subject, text));
            }
        },
    },
    CostLimit {
        name: "discovery",
        fragments: NOTATIONS,
        for_each: 128,
        for_any: EXPANDED,
        parse: |text| {
            for notation in [TargetListNotation::Json, TargetListNotation::Yaml] {
                drop(parse_addresses(text, notation));
            }
        },
    },
    CostLimit {
        name: "site_files",
        fragments: NOTATIONS,
        for_each: 256,
        for_any: EXPANDED,
        parse: |text| {
            for name in ["topology.conf", "topology.yaml", "topology.toml", "gpu1.json"] {
                drop(parse_topology(Path::new(name), text));
            }
            drop(parse_jobs(Path::new("squeue.json"), text));
        },
    },
    CostLimit {
        name: "json_diff",
        fragments: NOTATIONS,
        for_each: 128,
        for_any: 256 << 10,
        parse: |text| {
            let old = serde_json::json!({ "a": text, "b": text.split(',').collect::<Vec<_>>() });
            let new = serde_json::json!({ "b": text.split(':').collect::<Vec<_>>(), "c": text });
            let change = json_diff::diff_values(&old, &new);
            let mut value = old;
            assert!(change.is_none_or(|change| json_diff::apply_diff(&mut value, &change).is_ok()));
        },
    },
];

/// Fragments one after the other, up to a size.
fn repeat_fragments<'a>(size: usize, mut next: impl FnMut() -> &'a str) -> String {
    let mut text = String::with_capacity(size);
    loop {
        let fragment = next();
        if fragment.is_empty() || text.len() + fragment.len() > size {
            return text;
        }
        text.push_str(fragment);
    }
}

/// Hard inputs of a size: each fragment alone many times, and mixtures.
fn hard_inputs(fragments: &[&str], size: usize) -> Vec<String> {
    let alone = fragments.iter().map(|fragment| repeat_fragments(size, || fragment));
    let mixtures = (0..MIXTURES).map(|seed| {
        let mut random = SeededRandom::new(seed ^ size as u64);
        repeat_fragments(size, || fragments[random.below(fragments.len() as u64) as usize])
    });
    alone.chain(mixtures).collect()
}

/// All scraped pages of other exporters in the tree.
fn scraped_pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scrapes");
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "prom") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            pages.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    pages.sort();
    assert!(pages.len() > 10, "{} pages", pages.len());
    pages
}

#[test]
fn parsing_costs_at_most_in_proportion_to_the_input() {
    let mut broken = Vec::new();
    for limit in LIMITS {
        let mut worst = 0.0_f64;
        for size in SIZES {
            for input in hard_inputs(limit.fragments, size) {
                let work = measure_work(|| (limit.parse)(&input));
                let allowed = limit.for_any + limit.for_each * input.len() as u64;
                worst = worst.max(work.bytes as f64 / allowed as f64);
                if work.bytes > allowed {
                    let start: String = input.chars().take(40).collect();
                    broken.push(format!(
                        "{}: {} B for {} B of {start:?}",
                        limit.name,
                        work.bytes,
                        input.len()
                    ));
                }
            }
        }
        println!("{}: {worst:.2} of its limit", limit.name);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Bytes that a page may allocate on its way into an engine and out of all its answers, for each of its bytes, and for any.
const ANSWERED_FOR_EACH: u64 = 400;
const ANSWERED_FOR_ANY: u64 = 8 << 20;

/// The same into all screens at two sizes, each with the answers to all its questions, twice.
const SHOWN_FOR_EACH: u64 = 550;
const SHOWN_FOR_ANY: u64 = 22 << 20;

/// When pages begin, their seconds, and their end.
const PAGES_BEGIN: UnixMs = UnixMs(1_700_000_000_000);
const PAGE_SECONDS: u64 = 3;
const PAGES_END: UnixMs = UnixMs(PAGES_BEGIN.0 + 1_000 * PAGE_SECONDS as i64);

/// An engine with some targets, all of which serve one page.
fn engine_with_page(page: &str, targets: u32) -> Engine {
    let start = PAGES_BEGIN;
    let mut engine = Engine::new(EngineOptions::default());
    engine.run_tick(start);
    let target = |number: u32| ScrapeTarget {
        id: TargetId(number),
        address: format!("10.0.0.{number}:9770").as_str().into(),
        node: Some(format!("n{number}").as_str().into()),
        origin: "test".into(),
    };
    engine.ingest_delivery(Delivery::Targets((0..targets).map(target).collect()));
    for second in 1..=PAGE_SECONDS {
        let at = start + Duration::from_secs(second);
        for number in 0..targets {
            let outcome = decode_page(page.as_bytes(), &PageLimits::default());
            let batch = Batch { target: TargetId(number), at, duration_ms: 1.0, outcome };
            engine.ingest_delivery(Delivery::Batch(batch));
        }
        engine.run_tick(at);
    }
    engine
}

/// Answers all questions, as JSON and back.
fn ask_everything(engine: &Engine) {
    for line in QUESTIONS {
        let question = Question::parse_line(line, &[]).unwrap();
        let answer = engine.answer_question(&question);
        if matches!(answer, Answer::Refused(_)) {
            panic!("{line} is refused");
        }
        let json = serde_json::to_value(&answer).unwrap();
        Answer::from_json(&question, &json).unwrap();
    }
}

/// Pages of other exporters, hard ones, and mixtures of the lines of both, by name.
fn all_pages() -> Vec<(String, String)> {
    let pages = scraped_pages();
    let hard = hard_inputs(PAGE, SIZES[1]).into_iter().map(|page| ("hard".to_owned(), page));
    let lines: Vec<&str> = pages.iter().flat_map(|(_, page)| page.lines()).collect();
    let mut random = SeededRandom::new(7);
    let mixed = (0..3).map(|number| {
        let mut page = String::new();
        while page.len() < SIZES[1] {
            page.push_str(lines[random.below(lines.len() as u64) as usize]);
            page.push('\n');
        }
        (format!("mixture {number}"), page)
    });
    let mixed: Vec<_> = mixed.collect();
    pages.into_iter().chain(hard).chain(mixed).collect()
}

/// Checks what each page allocates with this work, beside what any page may.
fn check_page_cost(
    pages: impl Iterator<Item = (String, String)>,
    for_each: u64,
    for_any: u64,
    work: impl Fn(&str),
) {
    let (mut broken, mut worst) = (Vec::new(), 0.0_f64);
    for (name, page) in pages {
        let spent = measure_work(|| work(&page));
        let allowed = for_any + for_each * page.len() as u64;
        worst = worst.max(spent.bytes as f64 / allowed as f64);
        if spent.bytes > allowed {
            broken.push(format!("{name}: {} B for {} B", spent.bytes, page.len()));
        }
    }
    println!("{worst:.2} of its limit");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn page_costs_at_most_in_proportion_to_its_size_from_ingest_to_answer() {
    check_page_cost(all_pages().into_iter(), ANSWERED_FOR_EACH, ANSWERED_FOR_ANY, |page| {
        ask_everything(&engine_with_page(page, 1));
    });
}

#[test]
fn page_costs_at_most_in_proportion_to_its_size_up_to_every_screen() {
    // Every third one: it takes ten times as long as the answers.
    check_page_cost(all_pages().into_iter().step_by(3), SHOWN_FOR_EACH, SHOWN_FOR_ANY, |page| {
        let engine = engine_with_page(page, 1);
        let ask = |question: &_| engine.answer_question(question);
        for screen in all_screens(&ask) {
            assert_eq!(draw_screen(&ask, screen, PAGES_END), None);
        }
    });
}

#[test]
fn answers_cost_at_most_in_proportion_to_the_fleet() {
    let pages = scraped_pages();
    let (_, page) = pages.iter().find(|(name, _)| name == "dcgm.prom").unwrap();
    let cost = |targets| {
        let engine = engine_with_page(page, targets);
        let named = named_questions().map(|(line, question)| (line, question.unwrap()));
        let asked =
            QUESTIONS.map(|line| (line.to_owned(), Question::parse_line(line, &[]).unwrap()));
        let costs = asked.into_iter().chain(named).map(|(line, question)| {
            let answer = || drop(serde_json::to_vec(&engine.answer_question(&question)));
            (line, measure_work(answer).bytes)
        });
        costs.collect::<Vec<_>>()
    };
    for ((line, few), (_, many)) in cost(4).into_iter().zip(cost(32)) {
        // Eight times the fleet; what any answer costs is left out of account by the room above it.
        assert!(many <= 12 * few + (64 << 10), "{line}: {few} B of 4 nodes, {many} B of 32");
    }
}
