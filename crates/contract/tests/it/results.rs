//! Which result a consumer can trust.

use outport_contract::{
    job_event::Integrity,
    key::EXTERNAL_HMAC,
    key_ring::{KeyRing, UnknownKey},
    signature::{IntegrityError, ResultSigner, ResultVerifier},
};

use crate::signatures::{master, ring};

fn signed_result(external: &KeyRing, plaintext: &[u8]) -> Integrity {
    let mut signer = ResultSigner::new(external);
    plaintext.chunks(3).for_each(|piece| signer.update(piece));
    signer.finish()
}

fn verify_result(
    external: &KeyRing,
    integrity: &Integrity,
    plaintext: &[u8],
) -> Result<(), IntegrityError> {
    let mut verifier = ResultVerifier::new(external, integrity)?;
    plaintext.chunks(5).for_each(|piece| verifier.update(piece));
    verifier.finish()
}

#[test]
fn a_result_is_trusted_only_if_every_byte_is_what_was_signed() {
    let external = ring(1, 1);
    let plaintext = b"id,name\n1,Ana\n";
    let integrity = signed_result(&external, plaintext);
    assert_eq!(verify_result(&external, &integrity, plaintext), Ok(()));
    let shorter = &plaintext[..plaintext.len() - 1];
    assert_eq!(verify_result(&external, &integrity, shorter), Err(IntegrityError::Forged));
    let longer = [plaintext.as_slice(), b"\n"].concat();
    assert_eq!(verify_result(&external, &integrity, &longer), Err(IntegrityError::Forged));
    for bit in 0..plaintext.len() * 8 {
        let mut flipped = *plaintext;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refusal = verify_result(&external, &integrity, &flipped);
        assert_eq!(refusal, Err(IntegrityError::Forged), "bit {bit}");
    }
    let other = ring(1, 2);
    assert_eq!(verify_result(&other, &integrity, plaintext), Err(IntegrityError::Forged));
    let empty = signed_result(&external, b"");
    assert_eq!(verify_result(&external, &empty, b""), Ok(()));
}

#[test]
fn an_integrity_that_cannot_be_checked_says_why() {
    let rotated = KeyRing::new(2, master(2)).and(1, master(1)).derive(EXTERNAL_HMAC);
    let integrity = signed_result(&rotated, b"rows");
    assert_eq!(integrity.key_version, 2);
    assert_eq!(verify_result(&rotated, &integrity, b"rows"), Ok(()));
    assert_eq!(verify_result(&rotated, &signed_result(&ring(1, 1), b"rows"), b"rows"), Ok(()));
    let unknown = IntegrityError::UnknownKey(UnknownKey { version: 2 });
    assert_eq!(verify_result(&ring(1, 1), &integrity, b"rows"), Err(unknown));
    let md5 = Integrity { algorithm: "HMAC-MD5".into(), ..integrity.clone() };
    assert_eq!(verify_result(&rotated, &md5, b"rows"), Err(IntegrityError::UnknownAlgorithm));
    let cut = Integrity { signature: integrity.signature[..32].to_owned(), ..integrity };
    assert_eq!(verify_result(&rotated, &cut, b"rows"), Err(IntegrityError::Malformed));
}

#[test]
fn a_signature_of_a_result_in_upper_case_is_refused_as_in_other_languages() {
    let integrity = signed_result(&ring(1, 1), b"rows");
    let upper = Integrity { signature: integrity.signature.to_ascii_uppercase(), ..integrity };
    let refusal = verify_result(&ring(1, 1), &upper, b"rows").expect_err("upper case");
    assert_eq!(refusal.to_string(), "integrity.signature must be 64 lower-case hex digits");
}
