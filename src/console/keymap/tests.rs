//! Tests of the key bindings: no key has two operations on one screen, and each key maps to its operation.

use super::*;
use crate::{screen::NodeScreen, screens::tests::all_screens};

#[test]
fn key_has_one_meaning_on_a_screen() {
    for screen in all_screens() {
        let bound_keys: Vec<KeyPress> =
            screen_bindings(&screen).flat_map(|binding| binding.keys).copied().collect();
        for (at, key) in bound_keys.iter().enumerate() {
            assert!(!bound_keys[at + 1..].contains(key), "{key:?} is bound twice on {screen:?}");
        }
    }
}

#[test]
fn keys_find_their_intent_where_they_have_one() {
    let overview = Screen::default();
    assert_eq!(intent_for_key(KeyPress::Char('q'), &overview), Some(KeyIntent::Quit));
    assert_eq!(intent_for_key(KeyPress::Ctrl('c'), &overview), Some(KeyIntent::Quit));
    assert_eq!(intent_for_key(KeyPress::Char('j'), &overview), Some(KeyIntent::Down));
    assert_eq!(intent_for_key(KeyPress::Char('§'), &overview), None);
    assert_eq!(intent_for_key(KeyPress::Char('t'), &overview), None);
    let node = NodeScreen("gpu001".into()).into();
    assert_eq!(intent_for_key(KeyPress::Char('t'), &node), Some(KeyIntent::Topology));
}
