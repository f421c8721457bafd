//! Numbers as text, without an allocation.

/// A printed number on the stack: a handler runs once per request, and the server's allocator is not free.
#[derive(Clone, Copy, Debug)]
pub struct NumberText {
    bytes: [u8; Self::LEN],
    start: usize,
}

impl NumberText {
    /// Sign, point and the 39 digits of the longest `i128`.
    const LEN: usize = 41;
    pub(crate) const EMPTY: NumberText = NumberText { bytes: [0; Self::LEN], start: Self::LEN };

    /// Prints an integer.
    pub fn integer(value: u64) -> NumberText {
        let mut text = NumberText::EMPTY;
        text.push_front_integer(u128::from(value));
        text
    }

    /// The printed ASCII bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// The printed text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    pub(crate) fn push_front(&mut self, byte: u8) {
        self.start = self.start.saturating_sub(1);
        if let Some(slot) = self.bytes.get_mut(self.start) {
            *slot = byte;
        }
    }

    pub(crate) fn push_front_integer(&mut self, mut value: u128) {
        // Two loops: dividing a u64 by ten is a multiplication, dividing a u128 is a call.
        while value > u128::from(u64::MAX) {
            self.push_front(b'0'.wrapping_add((value % 10) as u8));
            value /= 10;
        }
        let mut value = value as u64;
        loop {
            self.push_front(b'0'.wrapping_add((value % 10) as u8));
            value /= 10;
            if value == 0 {
                return;
            }
        }
    }
}
