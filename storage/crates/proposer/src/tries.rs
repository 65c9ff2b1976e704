//! The order in which peers are asked for WAL that a safekeeper lacks.

use pg_types::Lsn;

/// The peers that were asked for WAL from a position, while a safekeeper's log ended there.
#[derive(Default)]
pub struct Tries {
    at: Lsn,
    asked: Vec<usize>,
}

impl Tries {
    /// Of those that hold WAL behind `at`, each with how much, the one that holds most of all that were not asked for it
    /// yet; takes note of it. Once everyone was, it begins anew.
    pub fn choose(&mut self, at: Lsn, holders: &[(Lsn, usize)]) -> Option<usize> {
        if self.at != at {
            *self = Tries {
                at,
                asked: Vec::new(),
            };
        }
        if holders.iter().all(|(_, peer)| self.asked.contains(peer)) {
            self.asked.clear();
        }
        let fresh = holders.iter();
        let fresh = fresh.filter(|(_, peer)| !self.asked.contains(peer));
        let (_, peer) = *fresh.max()?;
        self.asked.push(peer);
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_asked_in_vain_comes_after_all_others() {
        let mut tries = Tries::default();
        let holders = [(Lsn(300), 0), (Lsn(500), 1), (Lsn(400), 3)];
        let mut at = |lsn| tries.choose(Lsn(lsn), &holders).expect("a holder");
        assert_eq!([at(100), at(100), at(100), at(100)], [1, 3, 0, 1]);
        assert_eq!([at(200), at(200)], [1, 3], "another place, another try");
        assert_eq!(
            tries.choose(Lsn(200), &holders[1..2]),
            Some(1),
            "nobody else is there"
        );
        assert_eq!(tries.choose(Lsn(200), &[]), None);
    }
}
