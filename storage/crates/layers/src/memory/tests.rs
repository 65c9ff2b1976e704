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

/// Promise: a metadata value that a read takes with it shares memory with nothing else: it is kept for later reads,
/// and would keep all that its read found.
#[test]
fn metadata_has_memory_of_its_own() {
    let layer = MemoryLayer::new();
    let keys = [1, 2].map(Key::aux);
    for (lsn, key) in [(10, keys[0]), (20, keys[0]), (30, keys[1])] {
        let value = Value::Meta(Bytes::copy_from_slice(&[lsn as u8; 4]));
        layer.put(key, Lsn(lsn), value).unwrap();
    }
    let mut found = Vec::new();
    let mut take = |version: Version| {
        found.push(version);
        ControlFlow::Continue(())
    };
    let (window, all) = (Window::upto(Lsn(40)), KeyRange::all());
    layer.newest_first(&keys[0], window, &mut take).unwrap();
    let wanted = keys.map(|key| (key, window));
    layer
        .newest_first_of(&wanted, &mut |_, it| take(it))
        .unwrap();
    layer.scan(&all, window, &mut |_, it| take(it)).unwrap();
    layer
        .scan_newest(&all, window, &mut |_, it| take(it))
        .unwrap();
    assert_eq!(found.len(), 2 + 3 + 3 + 2);
    for version in &found {
        let Value::Meta(bytes) = &version.value else {
            panic!("{version:?}")
        };
        assert!(bytes.is_unique(), "{version:?}");
    }
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

/// Versions, the layer file, how many versions, bytes, LSNs.
type Content = (Vec<(Key, Version)>, Vec<u8>, u64, u64, Option<LsnRange>);

/// Everything that a reader or a flush can see.
fn content(layer: &MemoryLayer) -> Content {
    let mut found = Vec::new();
    let all = Window::upto(Lsn::MAX);
    layer
        .scan(&KeyRange::all(), all, &mut |key, version| {
            found.push((key, version));
            ControlFlow::Continue(())
        })
        .unwrap();
    for (key, _) in found.clone() {
        assert!(!newest_first(layer, &key, all).is_empty());
    }
    let written = layer.write_delta_layer(&WriterOptions::level_0());
    let file = written.map_or_else(|_| Vec::new(), |(_, file)| file.to_bytes().to_vec());
    (found, file, layer.versions(), layer.bytes(), layer.lsns())
}

/// Promise: when memory runs out within a batch, nothing of the batch is there, and the batch can be put again: it is
/// there once then, as if nothing had happened.
#[test]
fn a_batch_that_finds_no_memory_leaves_nothing() {
    use crate::region::fault;

    let rel = pg_types::RelTag {
        spc: 1663,
        db: 5,
        rel: 16_384,
        fork: pg_types::ForkNumber::Main,
    };
    let value = |number: u64| match number % 5 {
        0 => Value::Meta(Bytes::from(vec![number as u8; 3000])),
        1 => Value::Image(Bytes::from(vec![number as u8; 8192])),
        2 => Value::Tombstone,
        _ => Value::Delta {
            bytes: Bytes::from(vec![number as u8; 4000]),
            starts_chain: number.is_multiple_of(2),
        },
    };
    let key = |number: u64| match number % 3 {
        0 => Key::aux((number % 700) as u32),
        _ => Key::rel_block(rel, (number % 900) as u32),
    };
    // Some come behind newer ones of their key, as images that storage makes do.
    let batch = |numbers: std::ops::Range<u64>| -> Vec<(Key, Lsn, Value)> {
        let lsn = |number: u64| Lsn(1000 + number / 4 - (number % 7) * 20);
        numbers
            .map(|number| (key(number), lsn(number), value(number)))
            .collect()
    };
    let put = |layer: &MemoryLayer, values: &[(Key, Lsn, Value)]| {
        layer.put_batch(
            values
                .iter()
                .map(|(key, lsn, value)| (*key, *lsn, Put::from(value))),
        )
    };
    let (first, second) = (batch(0..600), batch(600..3000));
    for regions in 0..3 {
        let (layer, whole) = (MemoryLayer::new(), MemoryLayer::new());
        for of in [&layer, &whole] {
            put(of, &first).unwrap();
        }
        let before = content(&layer);
        fault::leave(regions);
        let failed = put(&layer, &second);
        fault::leave(usize::MAX);
        assert!(matches!(failed, Err(LayerError::Write(_))), "{failed:?}");
        assert!(
            content(&layer) == before,
            "something was left behind {regions} regions"
        );
        for of in [&layer, &whole] {
            put(of, &second).unwrap();
        }
        assert!(content(&layer) == content(&whole));
    }
    // The first value of all, and one that comes alone.
    let layer = MemoryLayer::new();
    fault::leave(0);
    layer.put(Key::aux(1), Lsn(10), delta(1)).unwrap_err();
    fault::leave(usize::MAX);
    assert!(layer.is_empty() && layer.keys() == 0 && layer.lsns().is_none());
    layer.put(Key::aux(1), Lsn(10), delta(1)).unwrap();
    assert_eq!(
        newest_first(&layer, &Key::aux(1), Window::upto(Lsn(10))),
        [(10, 0)]
    );
}
