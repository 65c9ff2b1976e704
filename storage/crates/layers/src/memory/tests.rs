use super::*;

fn delta(byte: u8) -> Value {
    Value::Delta {
        bytes: Bytes::copy_from_slice(&[byte]),
        starts_chain: false,
    }
}

fn newest_first(layer: &MemoryLayer, key: &Key, window: Window) -> Vec<(u64, u16)> {
    let mut seen = Vec::new();
    layer
        .newest_first(key, window, &mut |version| {
            seen.push((version.lsn.0, version.seq));
            ControlFlow::Continue(())
        })
        .unwrap();
    seen
}

#[test]
fn values_at_one_lsn_keep_their_order_and_a_generated_image_stands_above_them() {
    let layer = MemoryLayer::new();
    let key = Key::aux(1);
    layer.put(key, Lsn(10), delta(1)).unwrap();
    layer.put(key, Lsn(20), delta(2)).unwrap();
    layer
        .put_image(key, Lsn(10), Bytes::from_static(b"page"))
        .unwrap();
    layer.put(key, Lsn(20), delta(3)).unwrap();
    layer
        .put_image(key, Lsn(10), Bytes::from_static(b"page"))
        .unwrap();
    assert_eq!(
        newest_first(&layer, &key, Window::upto(Lsn(20))),
        [(20, 1), (20, 0), (10, Version::GENERATED), (10, 0)]
    );
    assert_eq!(
        newest_first(
            &layer,
            &key,
            Window {
                floor: Lsn(10),
                upto: Lsn(20)
            }
        ),
        [(20, 1), (20, 0)]
    );
    assert_eq!(
        newest_first(
            &layer,
            &key,
            Window {
                floor: Lsn(30),
                upto: Lsn(20)
            }
        ),
        []
    );
    assert_eq!(layer.versions(), 4);
}

#[test]
fn a_frozen_layer_refuses_puts() {
    let layer = MemoryLayer::new();
    layer.put(Key::aux(1), Lsn(10), delta(1)).unwrap();
    layer.freeze();
    assert!(matches!(
        layer.put(Key::aux(1), Lsn(11), delta(1)),
        Err(LayerError::Frozen)
    ));
    assert!(matches!(
        layer.put_image(Key::aux(1), Lsn(10), Bytes::new()),
        Err(LayerError::Frozen)
    ));
    assert_eq!(layer.versions(), 1);
}

#[test]
fn the_newest_lsn_is_found_inside_the_layer() {
    let layer = MemoryLayer::new();
    for lsn in [10, 20, 30] {
        layer.put(Key::aux(lsn as u32), Lsn(lsn), delta(0)).unwrap();
    }
    assert_eq!(layer.newest_lsn(Lsn(9)), None);
    assert_eq!(layer.newest_lsn(Lsn(29)), Some(Lsn(20)));
    assert_eq!(layer.newest_lsn(Lsn(99)), Some(Lsn(30)));
}
