//! Damaged inputs without end: what reads files must refuse them or read them, and never fall over.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

/// How long each target is fed, in seconds; unset, as in CI, it is 30.
const SECONDS: &str = "SOFTDICT_FUZZ_SECONDS";
/// A file to which each target adds a line with what it was fed.
const LOG: &str = "SOFTDICT_FUZZ_LOG";
/// An input that takes longer hangs, on the busiest machine.
const HANGS: Duration = Duration::from_secs(20);
/// Numbers that readers trip over, as text and as the eight bytes of a length.
const NUMBERS: [&str; 9] =
    ["0", "-1", "1e999", "NaN", "4294967296", "9223372036854775807", "18446744073709551615", "1e-320", "0.5"];

/// Numbers in a disorder that is the same every time (splitmix64: Steele, Lea and Flood 2014).
struct Disorder(u64);

impl Disorder {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// A place in `bytes`, its end included.
    fn place(&mut self, bytes: &[u8]) -> usize {
        self.below(bytes.len() + 1)
    }

    /// A stretch of `bytes`, mostly short.
    fn stretch(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.place(bytes);
        let most = if self.below(4) == 0 { bytes.len() } else { 16 };
        start..(start + self.below(most.max(1))).min(bytes.len())
    }

    /// One of the inputs, damaged once or some times.
    fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.damage(&mut bytes, seeds);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let (place, stretch) = (self.place(bytes), self.stretch(bytes));
        match self.below(9) {
            0 if place < bytes.len() => bytes[place] ^= 1 << self.below(8),
            1 if place < bytes.len() => bytes[place] = self.next() as u8,
            2 => bytes.truncate(place),
            3 => drop(bytes.drain(stretch)),
            4 => {
                let again = bytes[stretch].to_vec();
                bytes.splice(place..place, again);
            }
            5 => {
                let other = &seeds[self.below(seeds.len())];
                let part = other[self.stretch(other)].to_vec();
                bytes.splice(place..place, part);
            }
            6 => {
                let number = NUMBERS[self.below(NUMBERS.len())];
                let digits = |at: &usize| bytes[*at].is_ascii_digit();
                let from = (place..bytes.len()).find(digits).unwrap_or(place);
                let to = (from..bytes.len()).find(|at| !digits(at)).unwrap_or(bytes.len());
                bytes.splice(from..to, number.bytes());
            }
            7 => {
                let length = [0, 1, u64::MAX, 1 << 62, 1 << 32][self.below(5)].to_le_bytes();
                let end = (place + 8).min(bytes.len());
                bytes[place..end].copy_from_slice(&length[..end - place]);
            }
            _ => {
                let odd: &[u8] =
                    [&b"\0"[..], b"\xff", b"\"", b"{", b"]", b"\x1b[2J", b"../", "\u{202e}".as_bytes()]
                        [self.below(8)];
                bytes.splice(place..place, odd.iter().copied());
            }
        }
    }
}

/// The most memory that this process has held, in bytes, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Feeds `target` damaged copies of `seeds`: for 30 seconds, or as long as `SOFTDICT_FUZZ_SECONDS` says.
///
/// The inputs are the same every time. Fails when the target panics, takes twenty seconds for an input, or when the process
/// has held more than `most_memory` bytes.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], most_memory: u64, target: &mut dyn FnMut(&[u8])) {
    let seconds = std::env::var(SECONDS).ok().map_or(30, |text| text.parse().unwrap());
    let (clock, limit) = (Instant::now(), Duration::from_secs(seconds));
    let (mut disorder, mut inputs) = (Disorder(1), 0u64);
    for seed in seeds {
        target(seed);
    }
    while clock.elapsed() < limit {
        let input = disorder.damaged(seeds);
        let started = Instant::now();
        target(&input);
        inputs += 1;
        assert!(
            started.elapsed() < HANGS,
            "{name}: input {inputs} hangs: {:?}",
            String::from_utf8_lossy(&input)
        );
        if inputs.is_multiple_of(256) {
            let peak = peak_memory().unwrap_or(0);
            assert!(peak < most_memory, "{name}: {peak} bytes of memory within {inputs} inputs");
        }
    }
    if let Ok(path) = std::env::var(LOG) {
        let mut log: File = OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(
            log,
            "{name}: {inputs} inputs in {seconds} s, at most {} MiB",
            peak_memory().unwrap_or(0) >> 20
        )
        .unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_the_same_every_time_and_of_every_kind() {
        let seeds = [b"{\"size\": 12, \"name\": \"x\"}".to_vec(), vec![7; 40]];
        let all = || {
            let mut disorder = Disorder(1);
            (0..2000).map(|_| disorder.damaged(&seeds)).collect::<Vec<_>>()
        };
        let inputs = all();
        assert_eq!(inputs, all());
        let holds = |part: &[u8]| inputs.iter().any(|input| input.windows(part.len()).any(|own| own == part));
        for part in [&b"1e999"[..], b"NaN", &u64::MAX.to_le_bytes(), b"../", b"\x1b[2J", b"\xff"] {
            assert!(holds(part), "{part:?}");
        }
        assert!(inputs.iter().any(Vec::is_empty) && inputs.iter().any(|input| input.len() > 45));
    }
}
