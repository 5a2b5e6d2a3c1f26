//! Counter-based random numbers: one stream per purpose, position part of the state.
//!
//! Every draw is a pure function of `(seed, purpose, substream, position)`, so a run can be resumed by
//! remembering one integer per stream, no stream disturbs another, and every thread count and device sees
//! the same numbers.
//!
//! # Source
//! Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3 (Philox-4×32-10).

/// What a stream of random numbers is for; streams of different purposes never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Initial weights; the substream is the parameter's place in the table.
    Init = 1,
    /// Which windows of the text a step sees.
    Data = 2,
    /// Which activations are dropped; the substream counts forward passes.
    Dropout = 3,
    /// Which token is drawn; the substream counts samples.
    Sampling = 4,
    /// The tales.
    Corpus = 5,
    /// Which tokens the masked objective hides.
    Masking = 6,
    /// Random blocks and resamples behind head scores.
    Scores = 7,
}

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words from a counter and a key: Philox-4×32 with ten rounds.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let first = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let second = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// Where a stream's words live in the generator's counter space: fixed but for the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    key: [u32; 2],
    high: [u32; 2],
}

impl Space {
    /// The counter space of `purpose`; `substream` tells streams of one purpose apart (below 2⁵⁶).
    pub fn new(seed: u64, purpose: Purpose, substream: u64) -> Self {
        let high = [substream as u32, ((substream >> 32) as u32 & 0x00FF_FFFF) | ((purpose as u32) << 24)];
        Self { key: [seed as u32, (seed >> 32) as u32], high }
    }

    /// Words `4·block` to `4·block + 3` of the stream.
    #[inline(always)]
    pub fn block(&self, block: u64) -> [u32; 4] {
        philox([block as u32, (block >> 32) as u32, self.high[0], self.high[1]], self.key)
    }

    /// Word `index` of the stream.
    #[inline]
    pub fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }
}

/// A stream of random numbers that knows its position.
///
/// ```
/// use softdict_random::{Purpose, Stream};
/// let mut stream = Stream::new(7, Purpose::Data, 0);
/// let first = stream.below(100);
/// let position = stream.position();
/// let second = stream.below(100);
/// stream.seek(position);
/// assert_eq!(stream.below(100), second);
/// assert!(first < 100);
/// ```
#[derive(Debug, Clone)]
pub struct Stream {
    space: Space,
    position: u64,
}

impl Stream {
    /// The stream of `purpose` at its beginning; `substream` tells streams of one purpose apart.
    pub fn new(seed: u64, purpose: Purpose, substream: u64) -> Self {
        Self { space: Space::new(seed, purpose, substream), position: 0 }
    }

    /// How many words have been drawn.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Continues as if `position` words had been drawn.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        let word = self.space.word(self.position);
        self.position += 1;
        word
    }

    /// 64 random bits (two words).
    pub fn next_u64(&mut self) -> u64 {
        let low = u64::from(self.next_u32());
        low | (u64::from(self.next_u32()) << 32)
    }

    /// Uniform in `[0, 1)` with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `0..bound`; 0 where `bound` is 0. The bias is below `bound`/2⁶⁴.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A uniformly random order of `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers published with the generator (Random123, `kat_vectors`, philox4x32-10).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_stream_continues_from_its_position() {
        let mut stream = Stream::new(3, Purpose::Data, 1);
        let all: Vec<u32> = (0..11).map(|_| stream.next_u32()).collect();
        let mut resumed = Stream::new(3, Purpose::Data, 1);
        resumed.seek(5);
        let rest: Vec<u32> = (5..11).map(|_| resumed.next_u32()).collect();
        assert_eq!(all[5..], rest);
    }

    #[test]
    fn purposes_seeds_and_substreams_differ() {
        let first = |seed, purpose, substream| Stream::new(seed, purpose, substream).next_u64();
        let draws = [
            first(1, Purpose::Init, 0),
            first(2, Purpose::Init, 0),
            first(1, Purpose::Data, 0),
            first(1, Purpose::Init, 1),
        ];
        for (index, draw) in draws.iter().enumerate() {
            assert!(!draws[..index].contains(draw));
        }
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut stream = Stream::new(0, Purpose::Init, 0);
        let draws: Vec<f64> = (0..20_000).map(|_| stream.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        // four standard errors of each estimate at 20,000 draws: 0.028 and 0.04
        assert!(mean.abs() < 0.028, "{mean}");
        assert!((variance - 1.0).abs() < 0.04, "{variance}");
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut stream = Stream::new(0, Purpose::Sampling, 0);
        let mut counts = [0u32; 7];
        for _ in 0..7000 {
            counts[stream.below(7)] += 1;
        }
        // 1000 expected; six standard deviations of a binomial are 176
        assert!(counts.iter().all(|count| count.abs_diff(1000) < 176), "{counts:?}");
        assert_eq!(stream.below(0), 0);
    }

    #[test]
    fn shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..50).collect();
        Stream::new(9, Purpose::Corpus, 0).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
