//! How fast one core seals and opens: `cargo bench -p outport-contract`.
//!
//! Prints one line of JSON: the median of the rounds and their worst, in gigabytes (10⁹ bytes) of
//! plaintext a second, of the cipher as it is used: in pieces of 256 KiB, buffers used again.

#![expect(clippy::print_stdout, reason = "a program that reports")]

use std::{hint::black_box, time::Instant};

use outport_contract::{
    key::{MasterKey, STORAGE_ENCRYPTION},
    key_ring::KeyRing,
    sealed::{Opener, Sealer},
};

const OBJECT_BYTES: usize = 512 * 1024 * 1024;
const PIECE_BYTES: usize = 256 * 1024;
const ROUNDS: usize = 9;
const KEY: &str = "exports/bench.csv";

fn main() {
    let ring = KeyRing::new(1, MasterKey::generate()).derive(STORAGE_ENCRYPTION);
    let piece: Vec<u8> = (0..=255_u8).cycle().take(PIECE_BYTES).collect();
    let (mut sealing, mut opening) = (Vec::new(), Vec::new());
    let mut stored = Vec::with_capacity(4 * PIECE_BYTES + 1024);
    let mut plain = Vec::with_capacity(4 * PIECE_BYTES + 1024);
    for _ in 0..ROUNDS {
        sealing.push(gigabytes_a_second(|| {
            let mut sealer = Sealer::new(&ring, KEY);
            for _ in 0..OBJECT_BYTES / PIECE_BYTES {
                sealer.update(&piece, &mut stored);
                black_box(&stored);
                stored.clear();
            }
            sealer.finish(&mut stored);
            stored.clear();
        }));
        let object = sealed(&ring, &piece);
        opening.push(gigabytes_a_second(|| {
            let mut opener = Opener::new(&ring, KEY, OBJECT_BYTES as u64);
            for stored in object.chunks(PIECE_BYTES) {
                opener.update(stored, &mut plain).expect("what was sealed opens");
                black_box(&plain);
                plain.clear();
            }
            opener.finish().expect("all of it");
        }));
    }
    println!("{{{}, {}}}", figures("seal", sealing), figures("open", opening));
}

fn sealed(ring: &KeyRing, piece: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(OBJECT_BYTES + OBJECT_BYTES / 1024);
    let mut sealer = Sealer::new(ring, KEY);
    for _ in 0..OBJECT_BYTES / PIECE_BYTES {
        sealer.update(piece, &mut object);
    }
    sealer.finish(&mut object);
    object
}

fn gigabytes_a_second(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    OBJECT_BYTES as f64 / 1e9 / start.elapsed().as_secs_f64()
}

fn figures(name: &str, mut rounds: Vec<f64>) -> String {
    rounds.sort_by(f64::total_cmp);
    format!("\"{name}\": {{\"median\": {:.2}, \"worst\": {:.2}}}", rounds[ROUNDS / 2], rounds[0])
}
