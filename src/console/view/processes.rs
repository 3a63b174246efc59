//! The processes on the GPUs of a node, those with the most memory first.

use gaunt_schema::{Class, Safe, catalogue::gpu_parts};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::{hints, node_tables, put, put_page};
use crate::{
    answer::{DeviceDetail, NodeDetail},
    console::{
        format,
        state::{Room, State},
        theme::{Meaning, Theme},
        widget::table::{self, number, text},
    },
};

/// Draws one line for each process.
///
/// ```text
///  PROCESSES  8 on gpu003
///  GPU      pid  program           user      mem GiB  SM %  job or pod
///  5      40213  python3           alice        61.2    98  8812
/// ```
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    name: &Safe,
    theme: Theme,
) -> Room {
    let Some(detail) = state.node(name).filter(|_| state.data.refused.is_none()) else {
        put(buffer, area, &hints::waiting_for(name, state, area.width, theme));
        return Room::default();
    };
    let processes = ordered(detail);
    let mut lines = vec![Line::from(vec![
        Span::styled(" PROCESSES  ", theme.style(Meaning::Title)),
        Span::raw(format!("{} on {name}", processes.len())),
    ])];
    if processes.is_empty() {
        let text = "   none holds a GPU here, or nobody may say so (gaunt-node reads them from the driver)";
        lines.push(Line::styled(text, theme.style(Meaning::Dim)));
        put(buffer, area, &lines);
        return Room::default();
    }
    let room = usize::from(area.width).saturating_sub(3 + 8 + 18 + 10 + 8 + 5 + 7 * 2);
    let columns = [
        text("GPU", 3),
        number("pid", 8),
        text("program", 18),
        text("user", 10),
        number("mem GiB", 8),
        number("SM %", 5),
        text("job or pod", room),
    ];
    lines.push(table::heading(&columns, theme.style(Meaning::Title)));
    lines.extend(processes.iter().map(|process| table::row(&columns, cells(process, theme))));
    put_page(buffer, area, &lines, state.scroll, theme)
}

fn ordered(detail: &NodeDetail) -> Vec<&DeviceDetail> {
    let of = detail.devices.iter().filter(|device| device.class == Class::Process);
    let mut processes: Vec<&DeviceDetail> = of.collect();
    let memory = |process: &DeviceDetail| {
        process.value(gpu_parts::PROCESS_MEMORY.row().name).unwrap_or(-1.0)
    };
    processes.sort_by(|a, b| memory(b).total_cmp(&memory(a)));
    processes
}

fn cells(process: &DeviceDetail, theme: Theme) -> [(String, Style); 7] {
    let plain = Style::new();
    let label = |name: &str| process.labels.get(name).map_or_else(String::new, ToString::to_string);
    let info = process.info.get(gpu_parts::PROCESS_INFO.row().name);
    let told = |name: &str| {
        let value = info.and_then(|labels| labels.get(name)).filter(|value| !value.is_empty());
        value.map(ToString::to_string)
    };
    let absent = || format::ABSENT.to_owned();
    let holder = told("job").or_else(|| {
        let (namespace, pod) = (told("namespace"), told("pod")?);
        Some(namespace.map_or(pod.clone(), |namespace| format!("{namespace}/{pod}")))
    });
    [
        (label("gpu"), plain),
        (label("pid"), plain),
        (told("name").unwrap_or_else(absent), plain),
        (told("user").unwrap_or_else(absent), plain),
        node_tables::field(process, gpu_parts::PROCESS_MEMORY, theme, format::gibibytes),
        node_tables::percent_field(process, gpu_parts::PROCESS_SM, theme),
        (holder.unwrap_or_else(absent), theme.style(Meaning::Dim)),
    ]
}
