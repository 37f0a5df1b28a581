//! Sealed objects of small chunks, so that every bit and every length can be tried.

use std::ops::Range;

use proptest::{prelude::*, test_runner::RngSeed};

use super::{header::Header, *};
use crate::{
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
};

const CHUNK: usize = 16;
const SEALED_CHUNK: usize = CHUNK + layout::TAG_BYTES;
const KEY: &str = "exports/a.csv";
/// No plaintext, less than a chunk, a chunk, a byte more, chunks, and chunks and a rest.
const LENGTHS: [usize; 8] =
    [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK - 1, 3 * CHUNK, 3 * CHUNK + 5];

fn ring() -> KeyRing {
    let master = MasterKey::parse("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    KeyRing::new(7, master).derive(STORAGE_ENCRYPTION)
}

fn header(salt: u8) -> Header {
    Header { key_version: 7, chunk_bytes: CHUNK as u32, salt: [salt; 32] }
}

fn plaintext(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

fn seal_as(object_key: &str, header: Header, plain: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let mut sealer = Sealer::with_header(&ring(), object_key, header);
    sealer.update(plain, &mut stored);
    sealer.finish(&mut stored);
    stored
}

fn seal(plain: &[u8]) -> Vec<u8> {
    seal_as(KEY, header(1), plain)
}

/// Opened as the object at `KEY`, given in pieces; what was given out before a failure too.
fn open_pieces(
    plain_bytes: usize,
    stored: &[u8],
    piece: usize,
) -> (Vec<u8>, Result<(), NotOpened>) {
    let mut plain = Vec::new();
    let mut opener = Opener::new(&ring(), KEY, plain_bytes as u64);
    let updated = stored.chunks(piece).try_for_each(|piece| opener.update(piece, &mut plain));
    let ended = updated.and_then(|()| opener.finish());
    (plain, ended)
}

fn open(plain_bytes: usize, stored: &[u8]) -> Result<Vec<u8>, NotOpened> {
    let (plain, ended) = open_pieces(plain_bytes, stored, usize::MAX);
    ended.map(|()| plain)
}

/// Where a chunk of an object of whole chunks is stored.
fn stored_chunk(index: usize) -> Range<usize> {
    let start = HEADER_BYTES + index * SEALED_CHUNK;
    start..start + SEALED_CHUNK
}

#[test]
fn the_known_answers_come_out_and_open() {
    let golden = include_str!("../../../../tests/golden/sealed.json");
    let golden: serde_json::Value = serde_json::from_str(golden).expect("JSON");
    let sealed = &golden["sealed"];
    let object_key = sealed["objectKey"].as_str().expect("a text");
    let salt = std::array::from_fn(|at| 0x40 + at as u8);
    assert_eq!(crate::digest::hex(&salt), sealed["saltHex"].as_str().expect("a text"));
    for object in sealed["objects"].as_array().expect("a list") {
        let plain = object["plaintext"].as_str().expect("a text").as_bytes();
        let stored = seal_as(object_key, Header { salt, ..header(0) }, plain);
        let expected = object["storedHex"].as_str().expect("a text");
        assert_eq!(crate::digest::hex(&stored), expected);
    }
}

#[test]
fn every_length_comes_back_however_it_is_cut() {
    for length in LENGTHS {
        let plain = plaintext(length);
        let whole = seal(&plain);
        for piece in 1..=2 * SEALED_CHUNK {
            let mut stored = Vec::new();
            let mut sealer = Sealer::with_header(&ring(), KEY, header(1));
            plain.chunks(piece).for_each(|piece| sealer.update(piece, &mut stored));
            sealer.finish(&mut stored);
            assert_eq!(stored, whole, "{length} bytes in pieces of {piece}");
            assert_eq!(open_pieces(length, &stored, piece), (plain.clone(), Ok(())));
        }
        let layout = Layout::new(length as u64, CHUNK as u64);
        assert_eq!(layout.stored_bytes(), whole.len() as u64, "{length} bytes");
    }
}

#[test]
fn the_length_of_the_plaintext_follows_from_that_of_the_object() {
    let near = |length: u64| length.saturating_sub(40)..length + 40;
    let chunk = CHUNK_BYTES as u64;
    for plain in [0, chunk, 2 * chunk, 1000 * chunk, u64::from(u32::MAX)].into_iter().flat_map(near)
    {
        assert_eq!(plain_bytes(stored_bytes(plain)), Some(plain));
    }
    for stored in [0, stored_bytes(0), stored_bytes(chunk)].into_iter().flat_map(near) {
        let overhead = (1..4).map(|chunks| (HEADER_BYTES + chunks * layout::TAG_BYTES) as u64);
        let mut lengths = overhead.filter_map(|overhead| stored.checked_sub(overhead));
        let expected = lengths.find(|plain| stored_bytes(*plain) == stored);
        assert_eq!(plain_bytes(stored), expected, "{stored} bytes");
    }
}

#[test]
fn every_flipped_bit_is_found_and_nothing_of_its_chunk_is_given_out() {
    for length in LENGTHS {
        let plain = plaintext(length);
        let stored = seal(&plain);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (given, ended) = open_pieces(length, &flipped, usize::MAX);
            let refusal = ended.expect_err("a flipped bit");
            assert!(plain.starts_with(&given), "bit {bit}: only what was sealed");
            let at = bit / 8;
            let as_expected = match at {
                0..8 => refusal == NotOpened::NotSealed,
                8..10 => matches!(refusal, NotOpened::UnknownForm { .. }),
                10..12 => matches!(refusal, NotOpened::UnknownKey(_)),
                // Other chunks: too large to be any, or not those that were sealed.
                12..16 => !matches!(refusal, NotOpened::NotSealed),
                16..HEADER_BYTES => refusal == NotOpened::Forged { chunk: 0 },
                _ => {
                    let chunk = (at - HEADER_BYTES) / SEALED_CHUNK;
                    assert_eq!(given.len(), chunk * CHUNK, "bit {bit}: all before its chunk");
                    refusal == NotOpened::Forged { chunk: chunk as u64 }
                }
            };
            assert!(as_expected, "{length} bytes, bit {bit}: {refusal}");
        }
    }
}

#[test]
fn every_shorter_object_is_cut_short_and_every_longer_one_goes_on() {
    for length in LENGTHS {
        let stored = seal(&plaintext(length));
        for cut in 0..stored.len() {
            let refusal = open(length, &stored[..cut]).expect_err("cut short");
            let expected = if cut < HEADER_BYTES { HEADER_BYTES } else { stored.len() } as u64;
            assert_eq!(refusal, NotOpened::Truncated { expected, found: cut as u64 });
        }
        for more in [&[0][..], &[0; SEALED_CHUNK], &stored[HEADER_BYTES..], &stored] {
            let refusal = open(length, &[&stored, more].concat()).expect_err("too long");
            assert_eq!(refusal, NotOpened::TrailingData { expected: stored.len() as u64 });
        }
    }
}

#[test]
fn an_object_cut_at_a_chunk_is_found_even_by_who_believes_its_length() {
    let stored = seal(&plaintext(3 * CHUNK));
    for chunks in 1..3 {
        let cut = &stored[..stored_chunk(chunks).start];
        let last = NotOpened::Forged { chunk: chunks as u64 - 1 };
        assert_eq!(open(chunks * CHUNK, cut), Err(last), "{chunks} chunks");
    }
}

#[test]
fn a_removed_swapped_or_repeated_chunk_is_found_where_it_is() {
    let chunks = 4;
    let length = chunks * CHUNK;
    let stored = seal(&plaintext(length));
    for at in 0..chunks {
        let mut removed = stored.clone();
        removed.drain(stored_chunk(at));
        let expected = if at + 1 < chunks {
            NotOpened::Forged { chunk: at as u64 }
        } else {
            NotOpened::Truncated { expected: stored.len() as u64, found: removed.len() as u64 }
        };
        assert_eq!(open(length, &removed), Err(expected), "without chunk {at}");

        let mut repeated = stored.clone();
        let end = stored_chunk(at).end;
        repeated.splice(end..end, stored[stored_chunk(at)].to_vec());
        let expected = if at + 1 < chunks {
            NotOpened::Forged { chunk: at as u64 + 1 }
        } else {
            NotOpened::TrailingData { expected: stored.len() as u64 }
        };
        assert_eq!(open(length, &repeated), Err(expected), "chunk {at} twice");

        for other in at + 1..chunks {
            let mut swapped = stored.clone();
            swapped[stored_chunk(at)].copy_from_slice(&stored[stored_chunk(other)]);
            swapped[stored_chunk(other)].copy_from_slice(&stored[stored_chunk(at)]);
            let first = NotOpened::Forged { chunk: at as u64 };
            assert_eq!(open(length, &swapped), Err(first), "chunks {at} and {other} swapped");
        }
    }
}

#[test]
fn another_object_its_header_and_its_chunks_are_found() {
    let length = 3 * CHUNK;
    let ours = seal(&plaintext(length));
    let forged = |chunk| Err(NotOpened::Forged { chunk });
    // The same plaintext under another key, copied over ours.
    let theirs = seal_as("exports/b.csv", header(2), &plaintext(length));
    assert_eq!(open(length, &theirs), forged(0));
    // The same salt even, and a key that is ours and something more.
    assert_eq!(open(length, &seal_as("exports/a.csv2", header(1), &plaintext(length))), forged(0));
    // Another run of the same object: its header, one of its chunks.
    let earlier = seal_as(KEY, header(2), &plaintext(length));
    let spliced = [&earlier[..HEADER_BYTES], &ours[HEADER_BYTES..]].concat();
    assert_eq!(open(length, &spliced), forged(0));
    for at in 0..3 {
        let mut spliced = ours.clone();
        spliced[stored_chunk(at)].copy_from_slice(&earlier[stored_chunk(at)]);
        assert_eq!(open(length, &spliced), forged(at as u64));
    }
}

#[test]
fn what_is_not_sealed_or_of_a_later_form_or_key_says_so() {
    let stored = seal(b"rows");
    for other in [&b"id;name\n1;Ana\n"[..], b"\x1f\x8b", b"PK", b"\x93OUTSEAM", b"\x93O\0"] {
        assert_eq!(open(4, other), Err(NotOpened::NotSealed), "{other:?}");
        assert!(!is_sealed(other));
    }
    assert!(is_sealed(&stored) && is_sealed(&stored[..8]) && !is_sealed(&stored[..7]));
    let with = |at: usize, bytes: &[u8]| {
        let mut changed = stored.clone();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        open(4, &changed)
    };
    assert_eq!(with(8, &[0, 2]), Err(NotOpened::UnknownForm { form: 2 }));
    assert_eq!(with(10, &[0, 8]), Err(NotOpened::UnknownKey(UnknownKey { version: 8 })));
    let impossible = |chunk_bytes: u32| {
        assert_eq!(
            with(12, &chunk_bytes.to_be_bytes()),
            Err(NotOpened::ImpossibleChunks { chunk_bytes })
        );
    };
    impossible(0);
    impossible(16 * 1024 * 1024 + 1);
    impossible(u32::MAX);
}

#[test]
fn a_rotated_ring_opens_with_the_key_the_header_names_and_seals_with_the_current() {
    let (old, new) = (MasterKey::generate(), MasterKey::generate());
    let rotated = KeyRing::new(2, new).and(1, old.clone()).derive(STORAGE_ENCRYPTION);
    let old = KeyRing::new(1, old).derive(STORAGE_ENCRYPTION);
    let sealed = |ring: &KeyRing| {
        let mut stored = Vec::new();
        let mut sealer = Sealer::new(ring, KEY);
        sealer.update(b"rows", &mut stored);
        sealer.finish(&mut stored);
        stored
    };
    let opened = |ring: &KeyRing, stored: &[u8]| {
        let mut plain = Vec::new();
        Opener::new(ring, KEY, 4).update(stored, &mut plain).map(|()| plain)
    };
    assert_eq!(opened(&rotated, &sealed(&old)), Ok(b"rows".to_vec()));
    assert_eq!(opened(&rotated, &sealed(&rotated)), Ok(b"rows".to_vec()));
    let unknown = NotOpened::UnknownKey(UnknownKey { version: 2 });
    assert_eq!(opened(&old, &sealed(&rotated)), Err(unknown));
    assert_ne!(sealed(&old), sealed(&old), "every object has a salt of its own");
}

/// The plaintext of a range, reading no stored byte but those of its chunks.
fn open_range(length: usize, stored: &[u8], plain: Range<u64>) -> Option<Vec<u8>> {
    let object = SealedObject::new(&ring(), KEY, length as u64, stored).expect("a header");
    let mut range = object.range(plain)?;
    let Range { start, end } = range.stored_range();
    let mut out = Vec::new();
    for piece in stored[start as usize..end as usize].chunks(5) {
        range.update(piece, &mut out).expect("its chunks");
    }
    assert!(range.stored_range().is_empty());
    range.finish().expect("all of it");
    Some(out)
}

#[test]
fn every_range_is_read_from_its_own_chunks() {
    for length in LENGTHS {
        let plain = plaintext(length);
        let stored = seal(&plain);
        for start in 0..=length {
            for end in start..=length {
                let opened = open_range(length, &stored, start as u64..end as u64);
                assert_eq!(opened.as_deref(), Some(&plain[start..end]), "{length}: {start}..{end}");
            }
        }
        assert_eq!(open_range(length, &stored, 0..length as u64 + 1), None);
        #[expect(clippy::reversed_empty_ranges, reason = "it must be refused")]
        let reversed = 1..0;
        assert_eq!(open_range(length, &stored, reversed), None);
    }
}

#[test]
fn a_range_costs_its_chunks_and_is_not_ended_early() {
    let length = 4 * CHUNK;
    let stored = seal(&plaintext(length));
    let object = || SealedObject::new(&ring(), KEY, length as u64, &stored).expect("a header");
    let within_one = object().range(17..32).expect("within");
    let second = stored_chunk(1);
    assert_eq!(within_one.stored_range(), second.start as u64..second.end as u64);
    let mut over_two = object().range(31..33).expect("within");
    assert_eq!(over_two.stored_range(), second.start as u64..stored_chunk(2).end as u64);
    let mut plain = Vec::new();
    over_two.update(&stored[second.start..second.end + 3], &mut plain).expect("its chunk");
    assert_eq!(plain, plaintext(length)[31..32]);
    let (expected, found) = (stored_chunk(2).end as u64, second.end as u64 + 3);
    assert_eq!(over_two.finish(), Err(NotOpened::Truncated { expected, found }));
}

#[test]
fn a_chunk_is_opened_at_its_own_place_only() {
    let length = 2 * CHUNK + 5;
    let stored = seal(&plaintext(length));
    let object = SealedObject::new(&ring(), KEY, length as u64, &stored).expect("a header");
    let layout = object.layout();
    assert_eq!(layout.chunks(), 3);
    assert_eq!(layout.plain_bytes(), length as u64);
    for chunk in 0..4 {
        for claimed in 0..4 {
            let Range { start, end } = layout.stored(chunk);
            let mut bytes = stored[start as usize..(end as usize).min(stored.len())].to_vec();
            let opened = object.open_chunk(claimed, &mut bytes).map(|plain| plain.to_vec());
            if chunk == claimed && chunk < 3 {
                let Range { start, end } = layout.plain(chunk);
                assert_eq!(opened, Ok(plaintext(length)[start as usize..end as usize].to_vec()));
            } else {
                assert_eq!(opened, Err(NotOpened::Forged { chunk: claimed }));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(512) })]

    #[test]
    fn arbitrary_bytes_are_refused(
        magic in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        plain_bytes in any::<u64>(),
        piece in 1..64_usize,
    ) {
        let stored = if magic { [&header(1).bytes()[..12], &bytes].concat() } else { bytes };
        let mut plain = Vec::new();
        let mut opener = Opener::new(&ring(), KEY, plain_bytes);
        let updated = stored.chunks(piece).try_for_each(|piece| opener.update(piece, &mut plain));
        prop_assert!(updated.and_then(|()| opener.finish()).is_err());
        prop_assert!(plain.is_empty());
    }

    #[test]
    fn a_header_reads_back(key_version in any::<u16>(), chunk_bytes in 1..=16_u32 << 20, salt in any::<[u8; 32]>()) {
        let header = Header { key_version, chunk_bytes, salt };
        prop_assert_eq!(Header::parse(&header.bytes()), Ok(header));
    }

    #[test]
    fn chunks_lie_one_after_the_other_and_fill_the_object(
        plain_bytes in 0..1_u64 << 45,
        chunk_bytes in 1..=16_u64 << 20,
        at in any::<prop::sample::Index>(),
    ) {
        let layout = Layout::new(plain_bytes, chunk_bytes);
        let chunk = at.index(layout.chunks() as usize) as u64;
        let (plain, stored) = (layout.plain(chunk), layout.stored(chunk));
        prop_assert_eq!(stored.end - stored.start, plain.end - plain.start + 16);
        prop_assert_eq!(stored.end, layout.stored(chunk + 1).start);
        prop_assert_eq!(layout.stored(0).start, HEADER_BYTES as u64);
        prop_assert_eq!(layout.stored(layout.chunks() - 1).end, layout.stored_bytes());
        prop_assert_eq!(layout.plain(layout.chunks() - 1).end, plain_bytes);
        prop_assert_eq!(layout.holding(&plain), Some(chunk..chunk + 1));
    }
}
