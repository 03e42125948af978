//! Whether two prompts are nearly the same, without keeping either of them: keyed MinHash.
//!
//! The text becomes words: lower case, and everything that is no letter or digit only parts them, so that case, white
//! space and punctuation do not count. Letters of scripts that write no spaces are one word each. (Unicode forms are
//! not unified: a composed and a decomposed accent are different letters.) Three words in a row are one shingle. Two blank
//! words stand before the first word and two after the last, so that every word is in three shingles wherever it stands.
//! Each of the [`MINIMA`] hash functions keeps the least value over all shingles, and the share of equal minima estimates
//! the share of shingles that two texts have in common, with a standard error of at most 63 per mille.
//!
//! All the functions are drawn from HMAC-SHA-256 of the key. Without the key a stored signature tells nothing about its
//! text: no guess at the text can be tried. Each tenant has its own key, so signatures of two tenants cannot be compared.
//!
//! The cost is linear: one multiplication chain per letter and [`MINIMA`] of them per word.

use super::PerMille;
use crate::ids::to_hex;
use crate::key::hmac_sha256;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Minima in a signature.
pub const MINIMA: usize = 64;

/// From this similarity on two prompts are near-identical. Three shingles change with one word, so in a prompt of 60
/// words one changed word leaves 59 of 65 in common (about 900), and an added sentence of ten words 60 of 74 (about 800).
/// In a prompt of ten words a changed one leaves 9 of 15 (600), and is another question: a short prompt with another
/// number must not count. So the limit lies at one changed word in fifteen.
pub const NEAR_IDENTICAL_PER_MILLE: u16 = 700;

const SHINGLE_WORDS: usize = 3;
const BLANKS: [u64; SHINGLE_WORDS - 1] = [0; SHINGLE_WORDS - 1];
const MINIMUM_BYTES: usize = 4;
const DOMAIN: &[u8] = b"holdfast/fingerprint/1";

/// The keyed signature of a text. Stored and sent as 512 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u32; MINIMA]);

/// The text is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedFingerprint;

impl fmt::Display for MalformedFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed fingerprint")
    }
}

impl Fingerprint {
    /// The signature of a text without a single word.
    const BLANK: Self = Self([u32::MAX; MINIMA]);

    /// How many shingles two texts have in common, of all that they have, in thousandths; an estimate. The two must have
    /// been made with the same key.
    #[must_use]
    pub fn similarity(&self, other: &Self) -> PerMille {
        let equal = self.0.iter().zip(&other.0).filter(|(mine, theirs)| mine == theirs).count();
        PerMille::of(u32::try_from(equal).unwrap_or(u32::MAX), u32::try_from(MINIMA).unwrap_or(u32::MAX))
    }

    /// Whether the two prompts are near-identical: at or above [`NEAR_IDENTICAL_PER_MILLE`]. Texts without a single word
    /// never are: there is nothing to compare.
    #[must_use]
    pub fn is_near_identical(&self, other: &Self) -> bool {
        *self != Self::BLANK && self.similarity(other).get() >= NEAR_IDENTICAL_PER_MILLE
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = MalformedFingerprint;
    fn try_from(text: String) -> Result<Self, MalformedFingerprint> {
        let digits = text.as_bytes();
        let lower_hex = digits.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit));
        let minima: Vec<u32> = digits.chunks(MINIMUM_BYTES.saturating_mul(2)).map(minimum_of).collect();
        let minima = <[u32; MINIMA]>::try_from(minima).map_err(|_| MalformedFingerprint)?;
        let whole = digits.len() == MINIMA.saturating_mul(MINIMUM_BYTES).saturating_mul(2);
        if lower_hex && whole { Ok(Self(minima)) } else { Err(MalformedFingerprint) }
    }
}

fn minimum_of(digits: &[u8]) -> u32 {
    digits
        .iter()
        .fold(0_u32, |number, digit| number.wrapping_shl(4) | char::from(*digit).to_digit(16).unwrap_or_default())
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        let bytes: Vec<u8> = fingerprint.0.iter().flat_map(|minimum| minimum.to_be_bytes()).collect();
        to_hex(&bytes)
    }
}

/// The signature of `text` under `key`.
///
/// The text should be what the user asks for in this turn, not the whole conversation: a long history that is sent again
/// with every turn makes all its turns look alike.
#[must_use]
pub fn fingerprint(key: &[u8], text: &str) -> Fingerprint {
    let family = Family::of(key);
    let words = words(text, family.word);
    let mut signature = Fingerprint::BLANK;
    if words.is_empty() {
        return signature;
    }
    let padded = [&BLANKS[..], &words, &BLANKS].concat();
    for shingle in padded.windows(SHINGLE_WORDS) {
        let shingle = shingle.iter().fold(family.shingle, |state, word| mix(state ^ word));
        for (minimum, seed) in signature.0.iter_mut().zip(&family.minima) {
            // The upper half of the mix: 32 bits are enough to tell the shingles of one prompt apart.
            *minimum = (*minimum).min(u32::try_from(mix(shingle ^ seed) >> 32).unwrap_or(u32::MAX));
        }
    }
    signature
}

/// The hash functions of one key.
struct Family {
    word: u64,
    shingle: u64,
    minima: [u64; MINIMA],
}

impl Family {
    fn of(key: &[u8]) -> Self {
        let mut numbers = (0..=u8::MAX).flat_map(|block| {
            let bytes = hmac_sha256(key, &[DOMAIN, &[block]]);
            bytes.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number)).collect::<Vec<_>>()
        });
        let mut next = || numbers.next().unwrap_or_default();
        Self { word: next(), shingle: next(), minima: core::array::from_fn(|_| next()) }
    }
}

/// The hashes of the words, in order.
fn words(text: &str, seed: u64) -> Vec<u64> {
    let mut words = Vec::new();
    let mut open = None;
    for letter in text.chars().flat_map(char::to_lowercase) {
        if stands_alone(letter) {
            words.extend(open.take());
            words.push(absorb(seed, letter));
        } else if letter.is_alphanumeric() {
            open = Some(absorb(open.unwrap_or(seed), letter));
        } else {
            words.extend(open.take());
        }
    }
    words.extend(open);
    words
}

/// Letters of scripts that write no spaces between words: Thai and Lao, Burmese, Khmer, Chinese and Japanese.
const fn stands_alone(letter: char) -> bool {
    matches!(letter,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn absorb(state: u64, letter: char) -> u64 {
    mix(state ^ u64::from(u32::from(letter)))
}

/// A fixed permutation of 64 bits in which every input bit reaches every output bit (the finalizer of SplitMix64). The
/// key comes in through what is mixed.
const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
