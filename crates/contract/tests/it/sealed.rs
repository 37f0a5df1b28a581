//! Sealed objects as they are written: chunks of 1 MiB.

use outport_contract::{
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
    sealed::{CHUNK_BYTES, NotOpened, Opener, SealedObject, Sealer, stored_bytes},
};

const KEY: &str = "exports/a.csv";

fn plaintext(length: usize) -> Vec<u8> {
    (0..=250_u8).cycle().take(length).collect()
}

fn seal(ring: &KeyRing, plain: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let mut sealer = Sealer::new(ring, KEY);
    plain.chunks(300_000).for_each(|piece| sealer.update(piece, &mut stored));
    sealer.finish(&mut stored);
    stored
}

fn open(ring: &KeyRing, plain_bytes: usize, stored: &[u8]) -> Result<Vec<u8>, NotOpened> {
    let mut plain = Vec::new();
    let mut opener = Opener::new(ring, KEY, plain_bytes as u64);
    stored.chunks(300_000).try_for_each(|piece| opener.update(piece, &mut plain))?;
    opener.finish().map(|()| plain)
}

fn ring() -> KeyRing {
    KeyRing::new(1, MasterKey::generate()).derive(STORAGE_ENCRYPTION)
}

#[test]
fn objects_around_the_borders_of_chunks_come_back_and_have_the_length_foretold() {
    let ring = ring();
    for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES] {
        let plain = plaintext(length);
        let stored = seal(&ring, &plain);
        assert_eq!(stored_bytes(length as u64), stored.len() as u64, "{length} bytes");
        assert!(open(&ring, length, &stored).is_ok_and(|opened| opened == plain), "{length}");
        for cut in [stored.len() - 1, stored.len() - 16, stored.len() - 17, 48, 47] {
            let refusal = open(&ring, length, &stored[..cut]).expect_err("cut short");
            assert!(matches!(refusal, NotOpened::Truncated { .. }), "{length} bytes: {refusal}");
        }
    }
}

#[test]
fn a_range_over_a_border_needs_its_two_chunks() {
    let ring = ring();
    let length = 4 * CHUNK_BYTES + 9;
    let (plain, border) = (plaintext(length), 2 * CHUNK_BYTES);
    let stored = seal(&ring, &plain);
    let object = SealedObject::new(&ring, KEY, length as u64, &stored).expect("a header");
    let mut range = object.range(border as u64 - 5..border as u64 + 5).expect("within");
    let needed = range.stored_range();
    assert_eq!(needed.end - needed.start, 2 * (CHUNK_BYTES as u64 + 16));
    let mut opened = Vec::new();
    range.update(&stored[needed.start as usize..needed.end as usize], &mut opened).expect("ours");
    range.finish().expect("all of it");
    assert_eq!(opened, plain[border - 5..border + 5]);
}

#[test]
fn sealing_and_opening_hold_one_chunk_and_no_more() {
    let ring = ring();
    let piece = plaintext(64 * 1024);
    let (mut sealer, pieces) = (Sealer::new(&ring, KEY), 8 * CHUNK_BYTES / piece.len());
    let mut opener = Opener::new(&ring, KEY, 8 * CHUNK_BYTES as u64);
    let (mut stored, mut plain, mut given) = (Vec::new(), Vec::new(), 0);
    for fed in 1..=pieces {
        sealer.update(&piece, &mut stored);
        opener.update(&stored, &mut plain).expect("ours");
        stored.clear();
        given += plain.len();
        plain.clear();
        assert!(fed * piece.len() - given <= CHUNK_BYTES, "what is held back");
    }
    assert!(stored.capacity() <= 2 * CHUNK_BYTES, "the buffers are used again");
    sealer.finish(&mut stored);
    opener.update(&stored, &mut plain).expect("ours");
    opener.finish().expect("all of it");
    assert_eq!(given + plain.len(), 8 * CHUNK_BYTES);
}
