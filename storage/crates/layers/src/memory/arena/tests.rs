use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let bytes = prop_oneof![
        8 => 0..200_usize,
        1 => LONGEST_COPIED - 2..LONGEST_COPIED + 3,
        1 => Just(8192_usize),
    ]
    .prop_flat_map(|length| (Just(length), any::<u8>()))
    .prop_map(|(length, byte)| Bytes::from(vec![byte; length]));
    (0..6_u8, bytes).prop_map(|(kind, bytes)| match kind {
        0 => Value::Image(bytes),
        1 => Value::Zero,
        2 => Value::Meta(bytes),
        3 => Value::Tombstone,
        _ => Value::Delta {
            bytes,
            starts_chain: kind == 4,
        },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Promise: whatever was put is found where `push` said, and in its order, over as many chunks as it takes;
    /// to link one entry anew changes nothing else.
    #[test]
    fn entries_stay_as_they_were_put(values in proptest::collection::vec(value(), 1..200), times in 1..80_usize) {
        let mut arena = Arena::default();
        let mut put = Vec::new();
        for (number, value) in values.iter().cycle().take(values.len() * times).enumerate() {
            let order = (Lsn(number as u64 * 8), number as u16);
            let at = arena.push(number as u32, NONE, order, value.into()).unwrap();
            put.push((at, order, value));
        }
        for (number, (at, ..)) in put.iter().enumerate().step_by(3) {
            arena.link(*at, number as u32);
        }
        prop_assert_eq!(arena.entries(), put.len() as u64);
        let mut copies = Copies::default();
        let listed: Vec<u32> = arena.iter().map(|(at, _)| at).collect();
        let expected: Vec<u32> = put.iter().map(|(at, ..)| *at).collect();
        prop_assert_eq!(listed, expected);
        for (number, (at, (lsn, seq), value)) in put.into_iter().enumerate() {
            let entry = arena.get(at).expect("an entry that was put");
            let older = if number % 3 == 0 { number as u32 } else { NONE };
            prop_assert_eq!((entry.place(), entry.older()), (number as u32, older));
            prop_assert_eq!(entry.as_ref().value, value.as_ref());
            prop_assert_eq!(entry.version(&mut copies), Version { lsn, seq, value: value.clone() });
        }
        prop_assert!(arena.get(NONE).is_none());
    }

    /// Promise: memory is counted as it is taken, but for what is left over at the end of chunks.
    #[test]
    fn what_entries_cost_is_what_they_take(values in proptest::collection::vec(value(), 1..200)) {
        let mut arena = Arena::default();
        for value in &values {
            arena.push(0, NONE, (Lsn(8), 0), value.into()).unwrap();
        }
        let copied: usize = arena.chunks.iter().map(|chunk| chunk.len()).sum();
        let apart: usize = arena.apart.iter().map(Bytes::len).sum();
        let cost: u64 = values.iter().map(|value| Arena::cost(value.into())).sum();
        prop_assert_eq!(cost, (copied + apart) as u64);
    }
}
