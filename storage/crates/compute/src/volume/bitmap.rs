//! Which blocks of a file are there.

/// A set of block numbers that grows as needed.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    pub fn contains(&self, block: u32) -> bool {
        self.words
            .get(block as usize / 64)
            .is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    pub fn insert(&mut self, block: u32) {
        let index = block as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (block % 64);
    }
}
