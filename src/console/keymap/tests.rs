//! Tests of the key bindings: no key has two operations on one screen, and each key maps to its operation.

use super::*;

#[test]
fn no_key_has_two_meanings_on_a_screen() {
    let (node, id) = (|| "gpu001".into(), || "port_down/gpu001/mlx5_0/1".into());
    let mut places = vec![
        Screen::Finding(id()),
        Screen::Explanation(id()),
        Screen::Job("8812".into()),
        Screen::Node(node()),
        Screen::Device(node(), DeviceClass::Gpu, "GPU 0".into()),
        Screen::Topology(node()),
        Screen::List(Subject::Processes),
        Screen::Events(node()),
        Screen::Probe,
    ];
    places.extend((1..=9).map(Screen::main));
    for place in places {
        let all: Vec<KeyPress> =
            screen_bindings(&place).flat_map(|binding| binding.keys).copied().collect();
        for (at, key) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(key), "{key:?} is bound twice on {place:?}");
        }
    }
}

#[test]
fn keys_find_their_intent_where_they_have_one() {
    let overview = Screen::Overview;
    assert_eq!(intent_for_key(KeyPress::Char('q'), &overview), Some(KeyIntent::Quit));
    assert_eq!(intent_for_key(KeyPress::Ctrl('c'), &overview), Some(KeyIntent::Quit));
    assert_eq!(intent_for_key(KeyPress::Char('j'), &overview), Some(KeyIntent::Down));
    assert_eq!(intent_for_key(KeyPress::Char('§'), &overview), None);
    assert_eq!(intent_for_key(KeyPress::Char('t'), &overview), None);
    let node = Screen::Node("gpu001".into());
    assert_eq!(intent_for_key(KeyPress::Char('t'), &node), Some(KeyIntent::Topology));
}
