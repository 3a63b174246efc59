//! `gaunt snapshot --ask`: one answer as text, JSON and CSV, and the exit code of an invalid question.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    process::Output,
    thread,
    time::Instant,
};

use serde_json::Value;

use crate::{
    api_schema::start_fleet_aggregator,
    test_process::{DEADLINE, run_gaunt},
};

fn output_texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn one_question_is_printed_in_three_forms() {
    let (_sim, _running, address) = start_fleet_aggregator(6);
    let ask = |args: &[&str]| {
        let arguments = [&["snapshot", "--aggregator", &address, "--log", "off"], args].concat();
        output_texts(&run_gaunt(&arguments))
    };
    let filter = "power>1W sort power desc limit 3 columns node,gpu,power";
    // One target of the aggregator is unreachable, which determines the exit code.
    let (code, page, _) = ask(&["--ask", "gpus", "--filter", filter]);
    assert_eq!(code, Some(3));
    let lines: Vec<&str> = page.lines().collect();
    assert_eq!(lines.len(), 5, "{page}");
    assert!(lines[0].starts_with("NODE") && lines[0].ends_with("POWER"), "{page}");
    assert!(lines[1].ends_with(" W") && lines[4] == "3 of 48 gpus", "{page}");
    let (_, page, _) = ask(&["--ask", "gpus", "--filter", filter, "--format", "csv"]);
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["node", "gpu", "power_watts"]);
    let powers: Vec<f64> = rows[1..].iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(powers.len() == 3 && powers.is_sorted_by(|a, b| a >= b), "{page}");
    let (_, page, error) = ask(&["--ask", "gpus", "--filter", filter, "--format", "json"]);
    let table: Value = serde_json::from_str(&page).unwrap();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!((rows.len(), table["matched"].as_u64()), (3, Some(48)), "{page}");
    assert!(rows[0]["node"].is_string() && rows[0]["power"].is_f64(), "{page}");
    assert!(error.contains("gaunt: 3 of 48 rows printed; raise the limit"), "{error}");
    let (_, page, error) = ask(&["--ask", "gpus", "--limit", "5", "--format", "columns"]);
    let table: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(table["rows"].as_u64(), Some(5));
    assert_eq!(table["columns"][0]["name"], "node", "{page}");
    assert!(error.contains("gaunt: 5 of 48 rows printed"), "{error}");
    let (_, page, error) = ask(&["--ask", "gpus", "--format", "csv"]);
    assert_eq!((page.lines().count(), error.contains("rows printed")), (49, false), "{error}");
    for question in [
        "overview",
        "nodes",
        "jobs",
        "ports",
        "fabric",
        "findings",
        "targets",
        "coverage",
        "table/nodes",
        "history?metric=power&points=5",
    ] {
        for form in ["text", "csv", "json", "columns"] {
            let (_, page, error) = ask(&["--ask", question, "--format", form]);
            assert!(
                page.lines().count() > usize::from(!matches!(form, "json" | "columns")),
                "{question} {form}: {page}{error}"
            );
        }
    }
}

#[test]
fn invalid_question_ends_with_3_and_its_error_is_marked() {
    let ask = |args: &[&str]| {
        let arguments = [&["snapshot", "--aggregator", "127.0.0.1:9"], args].concat();
        output_texts(&run_gaunt(&arguments))
    };
    for (args, expected) in [
        (
            &["--ask", "gpus", "--filter", "job=1 and powr>300W"][..],
            "gaunt: invalid filter: column 11: gpus have no field powr; did you mean power?\njob=1 \
             and powr>300W\n          ^^^^\n",
        ),
        (&["--ask", "wibble"], "gaunt: unknown question wibble; known are overview, nodes, "),
        (&["--format", "csv"], "gaunt: --format csv needs one question; "),
        (&["--format", "columns"], "gaunt: --format columns needs one question; "),
        (&["--limit", "5"], "error: the following required arguments were not provided"),
        (
            &["--ask", "gpus", "--filter", "power>1 limit 3", "--limit", "5"],
            "gaunt: invalid filter: column 17: limit is given twice",
        ),
        (&["--filter", "job=1"], "error: the following required arguments were not provided"),
        (&["--ask", "overview"], "gaunt: aggregator 127.0.0.1:9 unreachable: "),
    ] {
        let (code, page, error) = ask(args);
        assert_eq!((code, page.as_str()), (Some(3), ""), "{args:?}");
        assert!(error.starts_with(expected), "{args:?}: {error}");
    }
}

#[test]
fn processes_can_be_filtered_and_have_no_past() {
    const PAGE: &str = "# TYPE gaunt_gpu_present gauge
gaunt_gpu_present{gpu=\"0\"} 1
gaunt_gpu_process_info{gpu=\"0\",pid=\"77\",name=\"python3\",user=\"alice\",job=\"8812\"} 1
gaunt_gpu_process_memory_bytes{gpu=\"0\",pid=\"77\"} 2147483648
gaunt_gpu_process_info{gpu=\"0\",pid=\"78\",name=\"vllm\",user=\"bob\"} 1
gaunt_gpu_process_memory_bytes{gpu=\"0\",pid=\"78\"} 4294967296
";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
            drop(request.collect::<Vec<_>>());
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close";
            let length = PAGE.len();
            drop(write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{PAGE}"));
        }
    });
    let target = format!("n1={address}");
    let ask = |question: &str, filter: &str, expected: &str| {
        // Three periods, the least; after them a busy machine may not have scraped the target yet.
        let args = ["snapshot", "--targets", &target, "--watch", "3s", "--log", "off"];
        let args =
            [&args[..], &["--ask", question, "--filter", filter, "--format", "csv"]].concat();
        let end = Instant::now() + DEADLINE;
        loop {
            let (code, page, error) = output_texts(&run_gaunt(&args));
            let page = page.replace("\r\n", "\n");
            if (code, page.as_str()) == (Some(0), expected) {
                return;
            }
            assert!(Instant::now() < end, "{question} {filter}: {code:?}: {page}{error}");
        }
    };
    // Each samples by itself, all at the same time.
    thread::scope(|scope| {
        for (question, filter, expected) in [
            (
                "table/processes",
                "sort memory desc columns node,pid,job",
                "node,pid,job\nn1,78,\nn1,77,8812\n",
            ),
            ("table/processes", "user=alice and memory>1GiB columns program", "program\npython3\n"),
            ("table/processes?at=-1s", "columns pid", "pid\n"),
        ] {
            let ask = &ask;
            scope.spawn(move || ask(question, filter, expected));
        }
    });
}
