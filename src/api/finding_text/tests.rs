//! Tests of findings as Markdown and HTML, with names that try to be markup.

use gaunt_schema::{Entity, FindingKind, SanitizedText, Severity};

use super::*;
use crate::{EvidenceRole, FleetChange, FleetChangeKind, HistoryRelation, LimitSide, VictimJob};

fn hostile_finding() -> Finding {
    let entity = Entity::new_port(&"gpu003|<b>".into(), &"mlx5_1".into(), &"1".into());
    let mut finding = Finding::new(FindingKind::PortDown, Severity::Critical, entity);
    finding.since = UnixMs(1_763_695_445_000);
    finding.confidence = 0.97;
    finding.lost_gpus = 112.0;
    finding.summary = "port mlx5_1/1 is down\n# and <script>alert(1)</script> | `x`".to_owned();
    finding.next = "check the cable [of](javascript:x) gpu003".to_owned();
    finding.victims =
        (0..8).map(|n| Entity::new_gpu(&"gpu003".into(), &n.to_string().into())).collect();
    finding.evidence = vec![EvidenceItem {
        what: "logical state".into(),
        value: Some(1.0),
        unit: Unit::Count,
        limit: Some(4.0),
        side: LimitSide::Below,
        role: EvidenceRole::Proof,
        note: "1 down | 4 active".into(),
        source: String::new(),
        threshold: String::new(),
        past: HistoryRelation::Same,
    }];
    finding
}

fn sample_context() -> FindingContext {
    FindingContext {
        id: String::new(),
        jobs: vec![VictimJob {
            job: "8812".into(),
            name: Some("llama-pt".into()),
            user: Some("alice".into()),
            account: None,
            gpus: 64,
        }],
        job_count: 1,
        cost_per_hour: Some(280.0),
        currency: "USD".into(),
        changes: vec![FleetChange {
            at: UnixMs(1_763_695_430_000),
            kind: FleetChangeKind::JobStarted,
            job: Some("8812".into()),
            nodes: Vec::new(),
            node_count: 8,
            what: SanitizedText::default(),
        }],
    }
}

fn sample_plot(finding: &Finding) -> EvidencePlot {
    let history = crate::MetricHistory {
        at: UnixMs(finding.since.0 + 370_000),
        metric: "state_id".into(),
        unit: Unit::Count,
        devices: 1,
        together: crate::HistoryAggregation::Mean,
        step_ms: 10_000,
        mean: (0..60).map(|at| (at != 30).then_some(if at < 23 { 4.0 } else { 1.0 })).collect(),
        low: Vec::new(),
        high: Vec::new(),
    };
    let mut item = finding.evidence[0].clone();
    item.what = "logical <i>state</i>".into();
    EvidencePlot { item, history: std::sync::Arc::new(history) }
}

fn render(link: Option<&str>) -> (String, String) {
    let (finding, context) = (hostile_finding(), sample_context());
    let text = FindingText {
        finding: &finding,
        at: UnixMs(finding.since.0 + 370_000),
        context: Some(&context),
        explanation: None,
        plots: &[sample_plot(&finding)],
        link,
        format: &|value, _| format!("{value}"),
    };
    (text.render_markdown(), text.render_html())
}

#[test]
fn markdown_has_what_since_cost_owner_change_evidence_next_and_link() {
    let (markdown, _) = render(Some("https://gaunt.example:9771/api/gaunt/v1/findings/x"));
    for part in [
        "(critical, confidence 97 %)",
        "- **Since**: 2025-11-21 03:24:05 UTC (6m10)",
        "- **Cost**: 112.0 GPUs lost, 280.00 USD per hour",
        "- **Owner**: job 8812 llama-pt of alice",
        "- **Changed**: job 8812 started on 8 nodes, 15s before",
        "- **Victims**: 8 GPUs of gpu003: 0-7",
        "- **Next**: check the cable",
        "| logical state | 1 | < 4 |".replace('<', "\\<").as_str(),
        "<https://gaunt.example:9771/api/gaunt/v1/findings/x>",
    ] {
        assert!(markdown.contains(part), "{part} in\n{markdown}");
    }
}

#[test]
fn names_are_never_markup() {
    let (markdown, html) = render(Some("javascript:alert(1)"));
    assert!(markdown.contains("gpu003\\|\\<b\\>") && !markdown.contains(" <script"), "{markdown}");
    assert!(!markdown.contains("\n# and"), "a text stays on its line: {markdown}");
    assert!(markdown.contains("\\[of\\](javascript:x)"), "{markdown}");
    assert!(markdown.contains("1 down \\| 4 active"), "{markdown}");
    assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
    assert!(html.contains("&lt;script&gt;") && html.contains("gpu003|&lt;b&gt;"), "{html}");
    assert!(!html.contains("javascript:alert"), "only web addresses are links: {html}");
    for outside in ["src=", "@import", "url(", "<link"] {
        assert!(!html.contains(outside), "the page needs nothing else: {outside}");
    }
}

#[test]
fn page_has_a_plot_of_each_history_with_limit_start_and_gap() {
    let (_, html) = render(None);
    assert_eq!(html.matches("<svg").count(), 1, "{html}");
    assert!(html.contains("logical &lt;i&gt;state&lt;/i&gt;</figcaption>"), "{html}");
    assert!(html.contains("&lt; 4</text>") && html.contains("start of the finding"), "{html}");
    assert!(html.contains(">03:20:25Z<") && html.contains(">03:30:15Z<"), "{html}");
    let line = html.split("<path d=\"M").last().unwrap();
    assert_eq!(line.matches('M').count(), 1, "one gap: {line}");
    assert!(html.contains("<td>2025-11-21 03:23:50</td><td>job 8812 started"), "{html}");
}

/// What a browser makes of the page: nothing of it is dropped or moved, and no name became an element.
#[test]
#[ignore = "needs chromium-headless-shell (Debian: apt-get install chromium-headless-shell)"]
fn page_opens_in_chromium() {
    let (_, html) = render(Some("https://gaunt.example:9771/api/gaunt/v1/findings/x"));
    let path = std::env::temp_dir().join(format!("gaunt-page-{}.html", std::process::id()));
    std::fs::write(&path, &html).unwrap();
    let output = std::process::Command::new("chromium-headless-shell")
        .args(["--no-sandbox", "--disable-gpu", "--virtual-time-budget=1000", "--dump-dom"])
        .arg(format!("file://{}", path.display()))
        .output();
    std::fs::remove_file(&path).unwrap();
    let output = output.expect("chromium-headless-shell runs");
    let dom = String::from_utf8(output.stdout).unwrap();
    for element in
        ["<h1", "<dt", "<dd", "<svg", "<path", "<text", "<figure", "<table", "<tr", "<td"]
    {
        let written = html.matches(element).count();
        assert!(written > 0, "{element} is not in the page");
        assert_eq!(dom.matches(element).count(), written, "{element} in\n{dom}");
    }
    assert!(!dom.contains("<script") && !dom.contains("<b>"), "{dom}");
}
