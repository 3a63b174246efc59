//! Access checks of the API: which requests are rejected, and what no answer ever allows.

#![expect(clippy::unwrap_used, reason = "what fails in here fails the test that called it")]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use crate::test_process::{DEADLINE, TestProcess, wait_for};

/// Head and body of the answer to a raw request.
fn send_request(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

fn start_aggregator() -> (TestProcess, String) {
    let running = TestProcess::start_aggregator(&[
        "--targets",
        "127.0.0.1:9",
        "--name",
        "gaunt.example",
        "--log",
        "info",
    ]);
    let address = running.served_address();
    wait_for("it serves", || TcpStream::connect(&address).ok());
    (running, address)
}

#[test]
fn request_with_a_foreign_host_name_is_rejected() {
    let (_running, address) = start_aggregator();
    let port = address.rsplit(':').next().unwrap();
    for (host, status) in [
        (address.clone(), "200"),
        (format!("localhost:{port}"), "200"),
        (format!("GAUNT.example:{port}"), "200"),
        ("[::1]".to_owned(), "200"),
        (format!("evil.example:{port}"), "421"),
        (format!("127.0.0.1.evil.example:{port}"), "421"),
    ] {
        for path in ["/api/gaunt/v1/overview", "/metrics", "/api/gaunt/v1/stream?ask=nodez"] {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let (head, body) = send_request(&address, &request);
            let status = if path.contains("nodez") && status == "200" { "400" } else { status };
            assert!(head.starts_with(&format!("http/1.1 {status}")), "{host} {path}: {head}");
            if status == "421" {
                assert!(body.contains("add the name with --name or serve.names"), "{body}");
            }
        }
    }
    // The request line determines the host, whatever the `Host` header contains.
    let request = format!(
        "GET http://evil.example/metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    );
    assert!(send_request(&address, &request).0.starts_with("http/1.1 421"));
}

#[test]
fn api_is_read_only_and_closed_to_other_origins() {
    let (_running, address) = start_aggregator();
    let ask = |method: &str, path: &str, headers: &str, body: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\n\
             Connection: close\r\n{headers}\r\n{body}"
        );
        send_request(&address, &request)
    };
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let (head, _) = ask(method, "/api/gaunt/v1/overview", "Content-Length: 0\r\n", "");
        assert!(head.starts_with("http/1.1 405"), "{method}: {head}");
        assert!(head.contains("allow: get, head"), "{head}");
    }
    let (head, _) = ask("GET", "/metrics", "Content-Length: 4\r\n", "body");
    assert!(head.starts_with("http/1.1 413"), "{head}");
    let (head, _) = ask("GET", "/metrics", "Transfer-Encoding: chunked\r\n", "0\r\n\r\n");
    assert!(head.starts_with("http/1.1 413"), "{head}");
    let (head, _) = ask("GET", "/metrics", "Sec-Fetch-Site: cross-site\r\n", "");
    assert!(head.starts_with("http/1.1 403"), "{head}");
    // Much of an oversized request is still unread when the answer comes: the answer must not be lost.
    for size in [64 << 10, 600 << 10] {
        let long = format!("/api/gaunt/v1/gpus?filter={}", "x".repeat(size));
        let (head, _) = ask("GET", &long, "", "");
        assert!(head.starts_with("http/1.1 4"), "{head}");
    }
    let body = "x".repeat(500 << 10);
    let (head, _) = ask("GET", "/metrics", &format!("Content-Length: {}\r\n", body.len()), &body);
    assert!(head.starts_with("http/1.1 413"), "{head}");
    for path in ["/", "/metrics", "/api/gaunt/v1/overview", "/api/gaunt/v1/nodes/x", "/nothing"] {
        let (head, _) = ask("GET", path, "", "");
        assert!(!head.contains("access-control-"), "{path}: {head}");
        for header in [
            "x-content-type-options: nosniff",
            "cache-control: no-store",
            "content-security-policy: default-src 'none'",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(header), "{path} has no {header}: {head}");
        }
    }
    let (head, body) = ask("HEAD", "/api/gaunt/v1/overview", "", "");
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
}
