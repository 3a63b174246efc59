//! An aggregator that puts terminal escape sequences into every text of every answer: none of them reaches standard
//! output, standard error or the screen.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use gaunt::answer_source::{AggregatorClient, AnswerSource};
use gaunt_api::{Answer, Question};
use serde_json::{Value, json};

use crate::{binaries::program_path, pty::TestPty, test_process::run_gaunt};

const API: &str = "/api/gaunt/v1/";

/// A window title, the clipboard, a colour by one byte, text direction, a line break, an invisible character.
const POISON: &str = "x\u{1b}]0;y\u{7}\u{1b}]52;c;aGk=\u{7}\u{9b}31m\u{202e}\r\nOK\u{200b}z";

/// Characters of it that must never reach the output.
const FORBIDDEN: [char; 7] = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{200b}', '\r', '\u{85}'];

/// Each answer: its request path, and the path in the API description.
const REQUESTS: [(&str, &str); 16] = [
    ("overview", "/overview"),
    ("nodes", "/nodes"),
    ("nodes/a", "/nodes/{node}"),
    ("gpus", "/gpus"),
    ("jobs/1", "/jobs/{job}"),
    ("ports", "/ports"),
    ("fabric", "/fabric"),
    ("findings", "/findings"),
    ("findings/a", "/findings/{finding}"),
    ("gpu_time", "/gpu_time"),
    ("closed", "/closed"),
    ("targets", "/targets"),
    ("history?metric=power&filter=node=a", "/history"),
    ("probe", "/probe"),
    ("usage", "/usage"),
    ("alerts", "/alerts"),
];

/// Maps whose keys are fixed names.
const NAMES: [(&str, &str); 3] = [
    ("/absent/*", "stale"),
    ("/findings_opened/*", "port_down"),
    ("/findings_without_place/*", "port_down"),
];

/// Texts with fixed values, which the description leaves open.
const KINDS: [(&str, &str); 3] = [
    ("/rows/0/state", "computing"),
    ("/rows/0/cause", "port_down"),
    ("/alerts/0/severity", "info"),
];

/// A text for a field of which nothing else is known.
fn plain_text(pointer: &str) -> String {
    let kind = KINDS.iter().find(|(end, _)| pointer.ends_with(end));
    kind.map_or("x", |(_, kind)| kind).to_owned()
}

fn load_openapi() -> Value {
    serde_json::from_str(include_str!("../../config/openapi.json")).unwrap()
}

/// A value of a schema with every member and one item in each list; `text` returns the text at a position.
fn value_of(api: &Value, schema: &Value, pointer: &str, text: &dyn Fn(&str) -> String) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return value_of(api, &api["components"]["schemas"][name], pointer, text);
    }
    if let Some(fixed) = schema.get("const").or_else(|| schema["enum"].get(0)) {
        return fixed.clone();
    }
    if let Some(kinds) = schema["oneOf"].as_array().or_else(|| schema["anyOf"].as_array()) {
        // A failure with a text; else the last type that is not null: that of a column is the one of texts.
        let kind = kinds.iter().find(|kind| kind["properties"]["detail"]["type"] == "string");
        let kind = kind.or_else(|| kinds.iter().rfind(|kind| kind["type"] != "null")).unwrap();
        return value_of(api, kind, pointer, text);
    }
    let any = if schema.get("properties").is_some() { "object" } else { "string" };
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or(any);
    match kind {
        "string" => text(pointer).into(),
        // Each row of a column of texts refers to the first one.
        "integer" | "number" => json!(u8::from(!pointer.contains("/codes"))),
        "boolean" => json!(true),
        "null" => Value::Null,
        "array" => {
            let prefix_items = schema["prefixItems"].as_array().cloned();
            let min_items = schema["minItems"].as_u64().unwrap_or(1).max(1) as usize;
            let items = prefix_items.unwrap_or_else(|| vec![schema["items"].clone(); min_items]);
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| value_of(api, item, &format!("{pointer}/{index}"), text))
                .collect()
        }
        _ => {
            let members = schema["properties"].as_object().cloned().unwrap_or_default();
            let mut object: serde_json::Map<_, _> = members
                .iter()
                .map(|(name, member)| {
                    (name.clone(), value_of(api, member, &format!("{pointer}/{name}"), text))
                })
                .collect();
            let additional = &schema["additionalProperties"];
            if additional.is_object() {
                let pointer = format!("{pointer}/*");
                let name = NAMES.iter().find(|(end, _)| pointer.ends_with(end));
                let name = name.map_or_else(
                    || text(&format!("{pointer}name")),
                    |(_, name)| (*name).to_owned(),
                );
                object.insert(name, value_of(api, additional, &pointer, text));
            }
            Value::Object(object)
        }
    }
}

/// Answers, by the first part of the path and whether more follows.
type CannedAnswers = Arc<BTreeMap<String, Value>>;

fn answer_key(path: &str) -> String {
    let path = path.split('?').next().unwrap();
    path.split_once('/').map_or(path.to_owned(), |(first, _)| format!("{first}/"))
}

/// Serves these answers, as streams too; returns the address.
fn serve_answers(answers: CannedAnswers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answers = Arc::clone(&answers);
            thread::spawn(move || drop(handle_request(stream, &answers)));
        }
    });
    address
}

fn handle_request(mut stream: TcpStream, answers: &CannedAnswers) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let path = first.split(' ').nth(1).unwrap_or_default();
    let path = path.strip_prefix(API).unwrap_or(path);
    let followed = path.split_once("ask=").map(|(_, ask)| ask.split('&').next().unwrap());
    let asked = followed.unwrap_or(path).replace("%2F", "/");
    let Some(answer) = answers.get(&answer_key(&asked)) else {
        let refused = json!({ "refused": "unknown_node", "node": POISON, "message": POISON });
        let body = refused.to_string();
        let head = format!("HTTP/1.1 404 x\r\ncontent-length: {}\r\n\r\n", body.len());
        return stream.write_all((head + &body).as_bytes());
    };
    if followed.is_some() {
        let line = json!({ "stream": "a", "number": 1, "whole": answer });
        write!(stream, "HTTP/1.1 200 OK\r\n\r\n{line}\n")?;
        // The stream stays open until the client disconnects.
        return stream.read_to_end(&mut Vec::new()).map(drop);
    }
    let body = answer.to_string();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn check_clean(text: &str, what: &str) {
    assert!(!text.contains(FORBIDDEN), "{what}: {text:?}");
}

/// Every text and name in a value.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => {
            texts.extend(members.keys().cloned());
            members.values().for_each(|member| collect_texts(member, texts));
        }
        _ => {}
    }
}

/// The decoded answer, or the reason why it cannot be decoded; neither contains terminal control characters.
fn read_answer(
    runtime: &tokio::runtime::Runtime,
    ask: &str,
    answer: &Value,
    streamed: bool,
) -> Result<usize, String> {
    let answers = [answer_key(ask), "table/".to_owned()].map(|key| (key, answer.clone()));
    let address = serve_answers(Arc::new(answers.into()));
    let question = Question::parse_line(ask, &[]).unwrap();
    let answer = runtime.block_on(async {
        let source = AnswerSource::Aggregator(AggregatorClient::new(&address).unwrap());
        let source = if streamed { source.with_streams() } else { source };
        source.ask_question(question).await
    });
    match answer {
        Ok(answer) => {
            assert!(!matches!(answer, Answer::Refused(_)), "{ask}");
            let mut texts = Vec::new();
            collect_texts(&serde_json::to_value(&answer).unwrap(), &mut texts);
            for text in &texts {
                check_clean(text, ask);
                assert!(!text.contains('\n'), "{ask}: {text:?}");
            }
            Ok(texts.iter().filter(|text| text.contains('\u{fffd}')).count())
        }
        Err(error) => {
            let message = format!("{error} {error:?}");
            check_clean(&message.replace("\\u{", "{"), ask);
            Err(message)
        }
    }
}

/// Each answer as described, and with escape sequences in every free text.
fn poisoned_answers(runtime: &tokio::runtime::Runtime) -> BTreeMap<String, Value> {
    let api = load_openapi();
    let mut answers = BTreeMap::new();
    for (ask, path) in REQUESTS {
        let schema =
            &api["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
        let valid = value_of(&api, schema, "", &plain_text);
        read_answer(runtime, ask, &valid, false)
            .unwrap_or_else(|why| panic!("{ask}: {why}: {valid}"));
        let pointers = std::cell::RefCell::new(Vec::new());
        value_of(&api, schema, "", &|pointer| {
            pointers.borrow_mut().push(pointer.to_owned());
            String::new()
        });
        // A text with fixed values is not free text: escape sequences in it make the answer invalid, which is reported.
        let free: Vec<String> = pointers
            .into_inner()
            .into_iter()
            .filter(|poisoned| {
                let candidate = value_of(&api, schema, "", &|pointer| {
                    if pointer == poisoned { POISON.to_owned() } else { plain_text(pointer) }
                });
                read_answer(runtime, ask, &candidate, false).is_ok()
            })
            .collect();
        let value = value_of(&api, schema, "", &|pointer| {
            let is_free = free.iter().any(|other| other == pointer);
            if is_free { POISON.to_owned() } else { plain_text(pointer) }
        });
        let marks = read_answer(runtime, ask, &value, false).unwrap();
        assert!(marks > 0 || free.is_empty(), "{ask}: the poison went nowhere");
        assert_eq!(read_answer(runtime, ask, &value, true), Ok(marks), "{ask} as a stream");
        answers.insert(answer_key(ask), value);
    }
    answers
}

#[test]
fn escape_sequences_in_answers_never_reach_the_terminal() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut answers = poisoned_answers(&runtime);
    let marked = answers.values().filter(|answer| answer.to_string().contains("]52;c;")).count();
    assert!(marked >= 10, "{marked} answers with texts that may be any text");
    let finding = answers["findings"]["findings"][0].clone();
    answers.insert("table/".to_owned(), answers["gpus"].clone());
    answers.insert("jobs".to_owned(), answers["gpus"].clone());
    let address = serve_answers(Arc::new(answers.clone()));
    let mut shown = 0;
    let mut run = |address: &str, args: &[&str]| {
        let url = format!("http://{address}");
        let args: Vec<&str> = args.iter().copied().chain(["--aggregator", &url]).collect();
        let output = run_gaunt(&args);
        for text in [&output.stdout, &output.stderr] {
            let text = str::from_utf8(text).unwrap();
            // CSV lines end with `\r\n`; the line break of the injected text comes before its own marker.
            assert!(!text.contains("\nOK"), "{args:?}: {text:?}");
            check_clean(&text.replace("\r\n", "\n"), &format!("{args:?}"));
            shown += text.matches('\u{fffd}').count();
        }
    };
    let commands: [&[&str]; 10] = [
        &["snapshot"],
        &["snapshot", "--format", "json"],
        &["snapshot", "--ask", "nodes", "--format", "csv"],
        &["snapshot", "--ask", "gpus"],
        &["snapshot", "--ask", "findings/a"],
        &["snapshot", "--ask", "nodes/a"],
        &["report"],
        &["explain"],
        &["explain", "a"],
        &["ack", "a", "--by", "me"],
    ];
    for command in commands {
        run(&address, command);
    }
    // With escape sequences in every text, fixed values included, the output is only an error.
    let invalid = answers.into_keys().map(|key| {
        let mut finding = finding.clone();
        finding["kind"] = POISON.into();
        (key, json!({ "at": 1, "findings": [finding], "state": POISON }))
    });
    let unreadable = serve_answers(Arc::new(invalid.collect()));
    let empty = serve_answers(Arc::default());
    for command in commands {
        run(&unreadable, command);
        run(&empty, command);
    }
    assert!(shown > 20, "the texts are shown, made safe: {shown}");

    let console =
        TestPty::start_program("", &program_path("gaunt"), &format!("--aggregator {address}"));
    console.wait_for_screen("the texts, made safe", |screen| screen.contains("]52;c;aGk="));
    for keys in ["2", "3", "4", "5", "1"] {
        let before = console.byte_count();
        console.press_keys(keys);
        crate::pty::wait_for_some("another picture", || {
            (console.byte_count() > before).then_some(())
        });
    }
    let written = String::from_utf8_lossy(&console.bytes_from(0)).into_owned();
    for sequence in ["\u{1b}]52;", "\u{1b}]0;y", "\u{9b}", "\u{202e}", "\u{200b}"] {
        assert!(!written.contains(sequence), "{sequence:?} on the screen");
    }
}
