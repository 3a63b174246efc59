//! The same screens on terminals without colours and with ASCII alone, and the colours of two screens as text.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use ratatui::{buffer::Buffer, style::Color};

use super::{GoldenConsole, buffer_lines};
use crate::{
    sample_answers,
    screen::NetworkScreen,
    theme::{ColourDepth, GlyphSet, Theme},
};
use gaunt_api::Answer;

impl GoldenConsole {
    /// Checks that colours carry nothing alone, and that each glyph has a form of its own in ASCII.
    pub(super) fn expect_plain_at(&mut self, width: u16, height: u16) {
        let theme = |colour, glyphs| Theme::new(colour, glyphs, |_| None);
        let coloured = self.draw_buffer(width, height, theme(ColourDepth::Indexed, self.glyphs));
        let plain = self.draw_buffer(width, height, theme(ColourDepth::None, self.glyphs));
        assert_eq!(buffer_lines(&coloured), buffer_lines(&plain), "NO_COLOR {width}x{height}");
        let is_default = |color| color == Color::Reset;
        assert!(plain.content.iter().all(|cell| is_default(cell.fg) && is_default(cell.bg)));
        let ascii = self.draw_buffer(width, height, theme(ColourDepth::None, GlyphSet::Ascii));
        assert!(ascii.content.iter().all(|cell| cell.symbol().is_ascii()));
        let unknown =
            |buffer: &Buffer| buffer.content.iter().filter(|cell| cell.symbol() == "?").count();
        let lines = buffer_lines(&ascii);
        assert_eq!(unknown(&ascii), unknown(&plain), "a glyph without ASCII form: {lines:#?}");
    }
}

/// Returns a letter for the colour of each cell, and the letters.
fn render_colours(buffer: &Buffer) -> String {
    let mut letters: BTreeMap<String, char> = BTreeMap::new();
    let mut out = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width)) {
        let line: String = row
            .iter()
            .map(|cell| {
                if cell.symbol() == " " {
                    return ' ';
                }
                let name = format!("{:?} {:?}", cell.fg, cell.modifier);
                let next = char::from(b'a' + letters.len() as u8);
                *letters.entry(name).or_insert(next)
            })
            .collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    let names = letters.iter().map(|(name, letter)| format!("{letter} {name}\n"));
    out.extend(names);
    out
}

#[test]
fn colours_of_overview_and_network() {
    let mut console = GoldenConsole::with_overview(sample_answers::two_faults_overview(32));
    let theme = Theme::new(ColourDepth::Indexed, GlyphSet::Unicode, |_| None);
    let overview = render_colours(&console.draw_buffer(120, 35, theme));
    console.state.screen = NetworkScreen.into();
    console.deliver_answer(Answer::Fabric(Arc::new(sample_answers::leaf_rail_fabric())));
    let network = render_colours(&console.draw_buffer(120, 35, theme));
    for (name, got) in [("two-faults", overview), ("network", network)] {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens");
        let path = folder.join(format!("{name}-120x35.colours.txt"));
        if std::env::var_os("GAUNT_BLESS").is_some() {
            fs::write(&path, &got).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert!(expected == got, "{} differs; got:\n{got}", path.display());
    }
}
