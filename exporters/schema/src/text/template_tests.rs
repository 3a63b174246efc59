//! A page that matches a template decodes as the strict reader decodes it, and so does one that almost matches.

use proptest::prelude::*;

use super::{PageLimits, TemplateCache, TemplateCacheStats, TemplateState, decode_page};
use crate::{
    DeviceClass, Reading, Report, ScrapedPage,
    catalogue::{gpu_parts::XID_ERRORS, host},
};

const DCGM: &str = include_str!("../../../../tests/fixtures/scrapes/dcgm.prom");
const SHORT: &str = include_str!("../../../../tests/fixtures/scrapes/short.prom");

const PAGES: [&str; 28] = [
    include_str!("../../../../tests/fixtures/scrapes/all_smi.prom"),
    include_str!("../../../../tests/fixtures/scrapes/amd_device_metrics.prom"),
    include_str!("../../../../tests/fixtures/scrapes/dcgm_3.prom"),
    include_str!("../../../../tests/fixtures/scrapes/dcgm_4_8.prom"),
    include_str!("../../../../tests/fixtures/scrapes/dcgm_4_9.prom"),
    include_str!("../../../../tests/fixtures/scrapes/dcgm_mig.prom"),
    include_str!("../../../../tests/fixtures/scrapes/dcgm_renamed.prom"),
    include_str!("../../../../tests/fixtures/scrapes/infiniband_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/nccl_inspector.prom"),
    include_str!("../../../../tests/fixtures/scrapes/node_storage.prom"),
    include_str!("../../../../tests/fixtures/scrapes/nvidia_gpu_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/rdma_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/snmp_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/tgi.prom"),
    include_str!("../../../../tests/fixtures/scrapes/triton.prom"),
    include_str!("../../../../tests/fixtures/scrapes/vllm.prom"),
    include_str!("../../../../tests/fixtures/scrapes/all_smi_accelerators.prom"),
    include_str!("../../../../tests/fixtures/scrapes/amd_device_metrics_1_5.prom"),
    include_str!("../../../../tests/fixtures/scrapes/amd_smi_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/gaudi_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/neuron_monitor.prom"),
    include_str!("../../../../tests/fixtures/scrapes/tpu_device_plugin.prom"),
    include_str!("../../../../tests/fixtures/scrapes/ufm_telemetry.prom"),
    DCGM,
    SHORT,
    include_str!("../../../../tests/fixtures/scrapes/node_exporter.prom"),
    include_str!("../../../../tests/fixtures/scrapes/node_infiniband.prom"),
    include_str!("../../../../tests/fixtures/sysroot/whole.prom"),
];

/// A small page with everything that a plan supports: readings, sums, masks, marks, clocks, infos, rejected lines,
/// unknown names, escapes.
const MIXED: &str = "# HELP gaunt_node_time_seconds The clock.\n# TYPE gaunt_node_time_seconds gauge\n\
gaunt_node_time_seconds 1795000000.25\n\
node_cpu_seconds_total{cpu=\"0\",mode=\"user\"} 1.5\n\
node_cpu_seconds_total{cpu=\"0\",mode=\"system\"} 2.25\n\
node_cpu_seconds_total{cpu=\"1\",mode=\"iowait\"} 3\n\
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu=\"0\",UUID=\"GPU-1\",Hostname=\"n1\"} 68\n\
DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-1\",Hostname=\"n1\"} 9223372036854775794\n\
DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",err_msg=\"a \\\"b\\\" \\\\ c\"} 0\n\
gaunt_gpu_info{gpu=\"0\",uuid=\"GPU-1\"} 1\n\
# a comment\n\n\
gaunt_absent{gpu=\"0\",metric=\"gaunt_gpu_power_watts\",reason=\"unsupported\"} 1\n\
gaunt_gpu_power_watts{gpu=\"1\",pod=\"a\"} 301.5\n\
gaunt_gpu_power_watts{gpu=\"1\",pod=\"b\"} 17\n\
gaunt_gpu_power_watts 4\n\
node_network_speed_bytes{device=\"eth0\"} -1000000\n\
node_infiniband_link_downed_total{device=\"mlx5_0\",port=\"1\"} 255\n\
nobody_knows 1e-300\n";

/// Asserts that both pages are equal, with readings compared by their bits. The first may have a sample more, which comes
/// from the page before it.
fn assert_same_page(left: &ScrapedPage, right: &ScrapedPage) -> Result<(), TestCaseError> {
    let bits = |report: &Report| {
        let samples = report.samples.iter();
        let bits = |reading: Reading| (reading.value().map(f64::to_bits), reading.absence_reason());
        samples
            .map(|sample| (sample.metric, sample.device, bits(sample.reading)))
            .collect::<Vec<_>>()
    };
    let (mut left_bits, right_bits) = (bits(&left.report), bits(&right.report));
    if left_bits.len() > right_bits.len() {
        prop_assert_eq!(left_bits.pop().map(|(metric, ..)| metric), Some(host::CPU_BUSIEST));
    }
    prop_assert_eq!(left_bits, right_bits);
    prop_assert_eq!(&left.report.devices, &right.report.devices);
    prop_assert_eq!(&left.report.infos, &right.report.infos);
    prop_assert_eq!(&left.report.node, &right.report.node);
    prop_assert_eq!(left.report.node_time, right.report.node_time);
    prop_assert_eq!((left.dialect, left.bytes), (right.dialect, right.bytes));
    prop_assert_eq!(&left.rejected, &right.rejected);
    Ok(())
}

/// Decodes `first`, then `second` as its successor; returns whether the second matched the template of the first.
fn repeats_template(
    first: &[u8],
    second: &[u8],
    limits: &PageLimits,
) -> Result<bool, TestCaseError> {
    let (layouts, mut state) = (TemplateCache::default(), TemplateState::default());
    for (body, expected) in [first, second].map(|body| (body, decode_page(body, limits))) {
        match (layouts.decode_page(&mut state, body, limits), expected) {
            (Ok(page), Ok(expected)) => assert_same_page(&page, &expected)?,
            (page, expected) => prop_assert_eq!(page.err(), expected.err()),
        }
    }
    Ok(layouts.cache_stats().repeated == 1)
}

/// The page with every value replaced by the result of `value`; the rest of each line is unchanged.
fn replace_values(page: &str, mut value: impl FnMut(usize, &str) -> String) -> String {
    let mut replaced = String::new();
    for (number, line) in page.split_inclusive('\n').enumerate() {
        match line.trim_end().rsplit_once(' ') {
            Some((head, old)) if !line.starts_with('#') => {
                replaced.push_str(head);
                replaced.push(' ');
                replaced.push_str(&value(number, old));
                replaced.push('\n');
            }
            _ => replaced.push_str(line),
        }
    }
    replaced
}

#[test]
fn pages_of_real_exporters_repeat_their_layout() {
    for page in PAGES.into_iter().chain([MIXED]) {
        // The fixture leaves values open that differ on each run.
        let page = &page.replace('…', "12.5");
        let next = replace_values(page, |_, old| match old.parse::<f64>() {
            Ok(number) if number > 2.0 && number.fract() != 0.0 => format!("{}", number + 1.5),
            _ => old.to_owned(),
        });
        assert!(
            repeats_template(page.as_bytes(), next.as_bytes(), &PageLimits::default()).unwrap(),
            "{page:.60}"
        );
    }
}

/// A name and its labels decide what a line means: a type that another version of an exporter writes changes no reading.
#[test]
fn type_of_a_family_may_flip_between_two_pages() {
    let flip = |line: &str| match line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' ')) {
        Some((name, "gauge")) => format!("# TYPE {name} counter\n"),
        Some((name, "counter" | "untyped")) => format!("# TYPE {name} gauge\n"),
        _ => format!("{line}\n"),
    };
    let mut flipped_pages = 0;
    for page in PAGES.into_iter().chain([MIXED]) {
        let page = page.replace('…', "12.5");
        let flipped: String = page.lines().map(flip).collect();
        flipped_pages += usize::from(flipped != page);
        let limits = PageLimits::default();
        repeats_template(page.as_bytes(), flipped.as_bytes(), &limits).unwrap();
        repeats_template(flipped.as_bytes(), page.as_bytes(), &limits).unwrap();
        let [before, after] =
            [&page, &flipped].map(|page| decode_page(page.as_bytes(), &limits).unwrap());
        assert_eq!(before.report.samples, after.report.samples, "{page:.60}");
    }
    assert!(flipped_pages > 20, "{flipped_pages}");
}

#[test]
fn timestamps_may_move() {
    let page = |index: u32| {
        format!("gaunt_node_load1 {index}.5 1700000000{index}\nother {index} -{index}\n")
    };
    assert!(
        repeats_template(page(100).as_bytes(), page(234).as_bytes(), &PageLimits::default())
            .unwrap()
    );
    for other in [
        "gaunt_node_load1 1 2\nother 1\n",
        "gaunt_node_load1 1 2\nother 1  2\n",
        "gaunt_node_load1 1 2\nother 1 2x\n",
        "gaunt_node_load1 1 99999999999999999999\nother 1 2\n",
    ] {
        assert!(
            !repeats_template(page(100).as_bytes(), other.as_bytes(), &PageLimits::default())
                .unwrap()
        );
    }
}

/// The last XID of a GPU appears, changes, equals that of another line, and goes: the template stays.
#[test]
fn xids_come_and_go() {
    let (layouts, mut state, limits) =
        (TemplateCache::default(), TemplateState::default(), PageLimits::default());
    let page = |values: [&str; 4]| {
        let [first, second, third, power] = values;
        format!(
            "DCGM_FI_DEV_XID_ERRORS{{gpu=\"0\",UUID=\"GPU-1\"}} {first}\n\
             DCGM_FI_DEV_XID_ERRORS{{gpu=\"0\",UUID=\"GPU-1\",pod=\"a\"}} {second}\n\
             DCGM_FI_DEV_XID_ERRORS{{gpu=\"1\",UUID=\"GPU-2\"}} {third}\n\
             DCGM_FI_DEV_POWER_USAGE{{gpu=\"1\",UUID=\"GPU-2\"}} {power}\n"
        )
    };
    let mut named = Vec::new();
    let mut lists = Vec::new();
    for values in [
        ["31", "0", "0", "300"],
        ["0", "0", "0", "301"],
        ["0", "79", "79", "302"],
        ["79", "79", "31", "303"],
        ["79", "79", "31", "304"],
        ["9223372036854775794", "2147483632", "NaN", "305"],
        ["0.5", "-3", "10001", "306"],
        ["48", "31", "10000", "307"],
    ] {
        let body = page(values);
        let expected = decode_page(body.as_bytes(), &limits).unwrap();
        let read = layouts.decode_page(&mut state, body.as_bytes(), &limits).unwrap();
        assert_same_page(&read, &expected).unwrap();
        let xids = read.report.devices.iter().filter(|device| device.class == DeviceClass::Xid);
        named.push(xids.map(|xid| xid.key.join("/")).collect::<Vec<_>>().join(" "));
        lists.push(read.report.devices);
    }
    assert_eq!(layouts.cache_stats().repeated, 7);
    assert_eq!(
        named,
        ["0/31", "", "0/79 1/79", "0/79 1/31", "0/79 1/31", "", "", "0/31 0/48 1/10000"]
    );
    assert!(lists[3].ptr_eq(&lists[4]) && lists[5].ptr_eq(&lists[6]), "equal lists are one");
    // A page that also has XIDs under our own names reports them once, and is parsed strictly.
    let two_xids = format!(
        "{}gaunt_gpu_xid_errors_total{{gpu=\"0\",xid=\"31\"}} 5\n",
        page(["31", "0", "31", "1"])
    );
    assert!(!repeats_template(two_xids.as_bytes(), two_xids.as_bytes(), &limits).unwrap());
    let report = decode_page(two_xids.as_bytes(), &limits).unwrap().report;
    let xids = report.samples.iter().filter(|sample| sample.metric == XID_ERRORS);
    assert_eq!(
        xids.map(|sample| sample.reading.value()).collect::<Vec<_>>(),
        [Some(5.0), Some(1.0)]
    );
}

/// Edits that almost match the template, and must be detected.
#[test]
fn near_misses_are_read_strictly() {
    let limits = PageLimits::default();
    let swap = |old: &str, new: &str| {
        let changed = MIXED.replacen(old, new, 1);
        assert_ne!(changed, MIXED, "{old}");
        assert!(
            !repeats_template(MIXED.as_bytes(), changed.as_bytes(), &limits).unwrap(),
            "{old} → {new}"
        );
    };
    swap("UUID=\"GPU-1\"", "UUID=\"GPU-2\"");
    swap("gpu=\"1\",pod=\"a\"", "gpu=\"2\",pod=\"a\"");
    swap("a \\\"b\\\"", "a \\\"b\\n");
    swap("# a comment", "# b comment");
    swap("# HELP gaunt_node_time_seconds The clock.\n", "");
    swap("\n\n", "\n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300\nnobody_knows2 1\n");
    swap("nobody_knows 1e-300\n", "");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300x\n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300");
    swap("nobody_knows 1e-300\n", "nobody_knows\t1e-300\n");
    swap("nobody_knows 1e-300\n", "nobody_knows  1e-300\n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300 \n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300\r\n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e-300 12\n");
    swap("nobody_knows 1e-300\n", "nobody_knows \n");
    swap("nobody_knows 1e-300\n", "nobody_knows 1e999\n");
    // The meaning of these lines depends on their values.
    swap("reason=\"unsupported\"} 1", "reason=\"unsupported\"} 0");
    swap("1795000000.25", "-1");
}

#[test]
fn changing_target_is_rarely_learned_and_targets_are_limited() {
    let limits = PageLimits::default();
    let layouts = TemplateCache::new(64 << 10);
    let mut state = TemplateState::default();
    for page in 0..500 {
        let body = format!("gaunt_node_load1{{page=\"{page}\"}} 1\n");
        layouts.decode_page(&mut state, body.as_bytes(), &limits).unwrap();
    }
    assert!(state.is_waiting(), "it is not learned each time");
    let mut memories: Vec<TemplateState> =
        std::iter::repeat_with(TemplateState::default).take(300).collect();
    for round in 0..2 {
        for (target, state) in memories.iter_mut().enumerate() {
            let line = |gpu| format!("gaunt_gpu_power_watts{{gpu=\"{target}{gpu}\"}} {round}\n");
            let body: String = (0..20).map(line).collect();
            layouts.decode_page(state, body.as_bytes(), &limits).unwrap();
            assert!(layouts.cache_stats().bytes <= 64 << 10);
        }
    }
    let TemplateCacheStats { repeated, bytes, .. } = layouts.cache_stats();
    assert!((1..300).contains(&repeated), "{repeated} of 300 fitted");
    drop(memories);
    // Unused templates are evicted for others.
    let (mut state, body) = (TemplateState::default(), "gaunt_node_load1{a=\"new\"} 1\n");
    for _ in 0..600 {
        layouts.decode_page(&mut state, body.as_bytes(), &limits).unwrap();
    }
    assert!(layouts.cache_stats().repeated > repeated, "{bytes} bytes were never freed");
}

#[test]
fn equal_layouts_are_stored_once() {
    let layouts = TemplateCache::default();
    let mut memories: Vec<TemplateState> =
        std::iter::repeat_with(TemplateState::default).take(50).collect();
    let mut sizes = Vec::new();
    for (target, state) in memories.iter_mut().enumerate() {
        let page = replace_values(SHORT, |_, _| target.to_string());
        layouts.decode_page(state, page.as_bytes(), &PageLimits::default()).unwrap();
        sizes.push(layouts.cache_stats().bytes);
    }
    assert!(sizes[0] > 0 && sizes[49] == sizes[0], "{sizes:?}");
    // So are the devices of all pages, including the first page of each target, which is parsed strictly.
    let mut pages = [0, 1].map(|_| TemplateState::default()).into_iter().map(|mut state| {
        layouts.decode_page(&mut state, SHORT.as_bytes(), &PageLimits::default()).unwrap()
    });
    let (first, second) = (pages.next().unwrap(), pages.next().unwrap());
    assert!(first.report.devices.ptr_eq(&second.report.devices));
    // A page with gaunt's own info series has only those for itself.
    let layouts = TemplateCache::default();
    let line = |node: usize| format!("gaunt_gpu_info{{gpu=\"0\",uuid=\"GPU-{node}\"}} 1\n");
    let mut memories = [TemplateState::default(), TemplateState::default()];
    let stored_bytes = [1, 2].map(|node| {
        let page = format!("{SHORT}{}", line(node));
        let state = &mut memories[node - 1];
        for _ in 0..2 {
            layouts.decode_page(state, page.as_bytes(), &PageLimits::default()).unwrap();
        }
        layouts.cache_stats()
    });
    assert_eq!(stored_bytes[1].repeated, 2);
    assert!(stored_bytes[1].bytes - stored_bytes[0].bytes < 1_000, "{stored_bytes:?}");
    // Where each node writes its own UUIDs, only those differ.
    let layouts = TemplateCache::default();
    let dcgm_page = |node: usize| DCGM.replace("UUID=\"GPU-9", &format!("UUID=\"GPU-{node}"));
    let mut memories = [TemplateState::default(), TemplateState::default()];
    let stored_bytes = [1, 2].map(|node| {
        layouts
            .decode_page(
                &mut memories[node - 1],
                dcgm_page(node).as_bytes(),
                &PageLimits::default(),
            )
            .unwrap();
        layouts.cache_stats().bytes
    });
    assert!(stored_bytes[1] - stored_bytes[0] < stored_bytes[0] / 20, "{stored_bytes:?}");
}

/// How a page differs from the one before it.
#[derive(Clone, Debug)]
enum PageEdit {
    /// Another value of a line.
    Value(usize, String),
    /// A line is removed.
    Drop(usize),
    /// A line is duplicated.
    Twice(usize),
    /// Two lines are swapped.
    Swap(usize, usize),
    /// A byte is replaced.
    Byte(usize, u8),
    /// A byte is inserted.
    Insert(usize, u8),
    /// The page is truncated.
    Cut(usize),
}

fn any_edit() -> impl Strategy<Value = PageEdit> {
    let value = prop_oneof![
        "[0-9]{1,20}",
        "-?[0-9]{1,9}\\.[0-9]{1,12}",
        "[0-9]\\.[0-9]{1,6}e[+-]?[0-9]{1,3}",
        Just("NaN".to_owned()),
        Just("+Inf".to_owned()),
        Just("-Inf".to_owned()),
        Just("-0".to_owned()),
        Just("9223372036854775794".to_owned()),
        Just("255".to_owned()),
        Just("0".to_owned()),
        "[0-9.eE+ -]{0,6}",
    ];
    let index = any::<usize>;
    let byte =
        || prop_oneof![any::<u8>(), prop::sample::select(b" \t\n\r{}\"\\,=#0123456789.-".to_vec())];
    prop_oneof![
        6 => (index(), value).prop_map(|(line, value)| PageEdit::Value(line, value)),
        1 => index().prop_map(PageEdit::Drop),
        1 => index().prop_map(PageEdit::Twice),
        1 => (index(), index()).prop_map(|(one, other)| PageEdit::Swap(one, other)),
        2 => (index(), byte()).prop_map(|(index, byte)| PageEdit::Byte(index, byte)),
        2 => (index(), byte()).prop_map(|(index, byte)| PageEdit::Insert(index, byte)),
        1 => index().prop_map(PageEdit::Cut),
    ]
}

fn apply_edit(page: &[u8], change: &PageEdit) -> Vec<u8> {
    let mut bytes = page.to_vec();
    if bytes.is_empty() {
        return bytes;
    }
    let length = bytes.len();
    match *change {
        PageEdit::Byte(index, byte) => bytes[index % length] = byte,
        PageEdit::Insert(index, byte) => bytes.insert(index % length, byte),
        PageEdit::Cut(index) => bytes.truncate(index % length),
        PageEdit::Value(..) | PageEdit::Drop(_) | PageEdit::Twice(_) | PageEdit::Swap(..) => {
            let mut lines: Vec<Vec<u8>> =
                page.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let count = lines.len();
            match change {
                PageEdit::Drop(index) => drop(lines.remove(index % count)),
                PageEdit::Twice(index) => lines.insert(index % count, lines[index % count].clone()),
                PageEdit::Swap(first, second) => lines.swap(first % count, second % count),
                PageEdit::Value(index, value) => {
                    let line = &mut lines[index % count];
                    if let Some(blank) = line.iter().rposition(|byte| *byte == b' ') {
                        line.truncate(blank + 1);
                        line.extend_from_slice(value.as_bytes());
                        line.push(b'\n');
                    }
                }
                _ => {}
            }
            bytes = lines.concat();
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn readers_agree_whatever_changes(
        before in prop::collection::vec(any_edit(), 0..3),
        between in prop::collection::vec(any_edit(), 0..4),
        has_low_limits in any::<bool>(),
    ) {
        let first = before.iter().fold(MIXED.as_bytes().to_vec(), |page, edit| apply_edit(&page, edit));
        let second = between.iter().fold(first.clone(), |page, edit| apply_edit(&page, edit));
        let limits = if has_low_limits {
            PageLimits { line_bytes: 90, labels: 2, samples: 14, ..PageLimits::default() }
        } else {
            PageLimits::default()
        };
        repeats_template(&first, &second, &limits)?;
    }

    #[test]
    fn values_are_those_of_the_strict_reader(
        value in "[+-]?[0-9]{0,22}(\\.[0-9]{0,22})?([eE][+-]?[0-9]{1,3})?|NaN|[+-]Inf|[ -~]{0,8}"
    ) {
        let page = |value: &str| format!("gaunt_node_load1 {value}\nnode_load1 1\n");
        repeats_template(page("1").as_bytes(), page(&value).as_bytes(), &PageLimits::default())?;
    }
}
