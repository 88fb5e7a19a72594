//! What a program says on stderr: always read, so that it never waits for us; the end of it is kept.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// So much is kept.
const KEPT: usize = 64 * 1024;
/// So much of it is told.
const TOLD: usize = 2 * 1024;

/// The last that was said.
#[derive(Debug, Default)]
pub(in crate::media) struct Tail(VecDeque<u8>);

impl Tail {
    /// Reads to the end.
    pub(super) async fn of(mut stream: impl AsyncRead + Unpin) -> Self {
        let mut tail = Self::default();
        let mut buffer = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            tail.add(&buffer[..read]);
        }
        tail
    }

    fn add(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
    }

    /// All that was kept.
    pub(in crate::media) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.iter().copied().collect::<Vec<_>>()).into_owned()
    }

    /// What may be told to a requester: the last lines, without control characters, addresses and paths.
    pub(in crate::media) fn told(&self) -> String {
        let text = self.text();
        let lines = text.lines().map(clean).filter(|line| !line.is_empty());
        let mut told = VecDeque::new();
        let mut length = 0;
        for line in lines.collect::<Vec<_>>().into_iter().rev() {
            length += line.len() + 2;
            if length > TOLD {
                break;
            }
            told.push_front(line);
        }
        told.make_contiguous().join("; ")
    }
}

/// One line in words that say nothing of this machine.
fn clean(line: &str) -> String {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = line.split_whitespace().map(|word| {
        let is_address = word.trim_end_matches(']').starts_with("0x");
        if word.contains('/') || is_address { "…" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_told_without_paths_or_control_characters() {
        let mut tail = Tail::default();
        for _ in 0..20_000 {
            tail.add(b"noise\n");
        }
        tail.add(b"[mov @ 0x55d1]\x1b[31m file:/srv/job/input: Invalid data\x07\n");
        assert_eq!(tail.text().len(), KEPT);
        let told = tail.told();
        assert!(told.len() <= TOLD && told.ends_with("[mov @ … [31m … Invalid data"), "{told}");
    }

    #[test]
    fn one_endless_line_is_not_told() {
        let mut tail = Tail::default();
        tail.add(&[b'x'; 3000]);
        assert_eq!(tail.told(), "");
    }
}
