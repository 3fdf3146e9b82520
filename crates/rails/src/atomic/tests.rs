use super::*;
use proptest::prelude::*;

const INTEGERS: [(u8, u32, bool); 10] = [
    (0, 8, true),
    (1, 8, false),
    (2, 16, true),
    (3, 16, false),
    (4, 32, true),
    (5, 32, false),
    (6, 64, true),
    (7, 64, false),
    (14, 128, true),
    (15, 128, false),
];

fn kind_of(op: u8) -> AtomicKind {
    match op {
        op::READ => AtomicKind::Fetch,
        op::CSWAP..=op::MSWAP => AtomicKind::Compare,
        _ => AtomicKind::Update,
    }
}

fn code(datatype: u8, op: u8, kind: AtomicKind, count: usize) -> AtomicCode {
    AtomicCode { datatype, op, kind, count: count as u32 }
}

/// Applies one operation at an offset from an aligned place; the values after and before.
fn once(code: AtomicCode, at: usize, old: &[u8], operands: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut memory = vec![0u128; (old.len() + at).div_ceil(16) + 1];
    let (target, mut before) = (memory.as_mut_ptr().cast::<u8>().wrapping_add(at), Vec::new());
    // SAFETY: `memory` has room for `old` from `at` on, and nobody else uses it.
    unsafe {
        std::ptr::copy_nonoverlapping(old.as_ptr(), target, old.len());
        apply(code, target, operands, &mut before).unwrap();
        (std::slice::from_raw_parts(target, old.len()).to_vec(), before)
    }
}

/// What an integer operation means, on 256 bits' worth of sign and magnitude: no Rust type is wrapped in.
fn model(op: u8, bits: u32, signed: bool, old: u128, operand: u128, comparand: u128) -> u128 {
    let mask = u128::MAX >> (128 - bits);
    // order-preserving: signed values are shifted up so that they compare as unsigned ones
    let rank = |v: u128| if signed { (v & mask) ^ (1 << (bits - 1)) } else { v & mask };
    let truth = |b: bool| if b { 1 } else { 0 };
    let swap = |yes: bool| if yes { operand } else { old };
    let (a, b, c) = (rank(old), rank(operand), rank(comparand));
    let new = match op {
        op::MIN => swap(b < a),
        op::MAX => swap(b > a),
        op::SUM => old.wrapping_add(operand),
        op::DIFF => old.wrapping_add((!operand).wrapping_add(1)),
        op::PROD => old.wrapping_mul(operand),
        op::LOR => truth(old & mask != 0 || operand & mask != 0),
        op::LAND => truth(old & mask != 0 && operand & mask != 0),
        op::LXOR => truth((old & mask != 0) ^ (operand & mask != 0)),
        op::BOR => old | operand,
        op::BAND => old & operand,
        op::BXOR => old ^ operand,
        op::READ => old,
        op::WRITE => operand,
        op::CSWAP => swap(c == a),
        op::CSWAP_NE => swap(c != a),
        op::CSWAP_LE => swap(c <= a),
        op::CSWAP_LT => swap(c < a),
        op::CSWAP_GE => swap(c >= a),
        op::CSWAP_GT => swap(c > a),
        op::MSWAP => {
            (0..bits).fold(0, |v, i| v | (if comparand >> i & 1 == 1 { operand } else { old }) & 1 << i)
        }
        _ => unreachable!(),
    };
    new & mask
}

fn bytes_of(values: &[u128], size: usize) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect()
}

fn value() -> impl Strategy<Value = u128> {
    prop_oneof![any::<u128>(), (0u128..4), (0u128..4).prop_map(|n| n.wrapping_neg())]
}

proptest! {
    #[test]
    fn integers_do_as_the_model(
        which in 0..INTEGERS.len(),
        op in 0..=op::DIFF,
        at in 0usize..24,
        fetch in any::<bool>(),
        elements in prop::collection::vec((value(), value(), value()), 0..4),
    ) {
        let (datatype, bits, signed) = INTEGERS[which];
        let size = bits as usize / 8;
        let kind = if fetch && op <= op::DIFF && kind_of(op) == AtomicKind::Update { AtomicKind::Fetch } else { kind_of(op) };
        let old = bytes_of(&elements.iter().map(|e| e.0).collect::<Vec<_>>(), size);
        let mut operands = bytes_of(&elements.iter().map(|e| e.1).collect::<Vec<_>>(), size);
        if kind == AtomicKind::Compare {
            operands.extend(bytes_of(&elements.iter().map(|e| e.2).collect::<Vec<_>>(), size));
        }
        let expected: Vec<_> =
            elements.iter().map(|&(old, operand, comparand)| model(op, bits, signed, old, operand, comparand)).collect();
        let (after, before) = once(code(datatype, op, kind, elements.len()), at, &old, &operands);
        prop_assert_eq!(after, bytes_of(&expected, size));
        prop_assert_eq!(before, if kind == AtomicKind::Update { vec![] } else { old });
    }
}

fn doubles(op: u8, kind: AtomicKind, old: f64, operands: &[f64]) -> f64 {
    let operands: Vec<_> = operands.iter().flat_map(|v| v.to_le_bytes()).collect();
    let (after, _) = once(code(9, op, kind, 1), 0, &old.to_le_bytes(), &operands);
    f64::from_le_bytes(after.try_into().unwrap())
}

#[test]
fn doubles_follow_ieee() {
    let update = |op, old, operand| doubles(op, AtomicKind::Update, old, &[operand]);
    assert_eq!(update(op::SUM, 0.1, 0.2), 0.1 + 0.2);
    assert_eq!(update(op::DIFF, 0.1, 0.2), 0.1 - 0.2);
    assert_eq!(update(op::PROD, 3.0, -7.0), -21.0);
    assert_eq!(update(op::MIN, 3.0, -7.0), -7.0);
    assert_eq!(update(op::MAX, f64::NAN, 1.0).to_bits(), f64::NAN.to_bits());
    assert_eq!(update(op::LAND, -0.5, f64::INFINITY), 1.0);
    assert_eq!(update(op::LXOR, -0.0, 0.0), 0.0);
    let swap = |op, old, new, comparand| doubles(op, AtomicKind::Compare, old, &[new, comparand]);
    assert_eq!(swap(op::CSWAP, 0.0, 5.0, -0.0), 5.0);
    assert_eq!(swap(op::CSWAP_NE, f64::NAN, 5.0, f64::NAN), 5.0);
    assert_eq!(swap(op::CSWAP_GE, 2.0, 5.0, 2.0), 5.0);
    assert_eq!(swap(op::CSWAP_GT, 2.0, 5.0, 2.0), 2.0);
}

#[test]
fn complex_numbers_multiply() {
    for at in [0, 8, 3] {
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let (after, before) =
            once(code(10, op::PROD, AtomicKind::Fetch, 1), at, &bytes([1.0, 2.0]), &bytes([3.0, -4.0]));
        assert_eq!((after, before), (bytes([11.0, 2.0]), bytes([1.0, 2.0])));
        let (after, _) =
            once(code(10, op::LOR, AtomicKind::Update, 1), at, &bytes([0.0, 2.0]), &bytes([0.0, 0.0]));
        assert_eq!(after, bytes([1.0, 0.0]));
    }
}

/// A `long double` with this value, and rubbish where it means nothing.
fn extended(negative: bool, exponent: i32, fraction: u64) -> [u8; 16] {
    let head = (exponent + 0x3fff) as u16 | u16::from(negative) << 15;
    let mut bytes = [0xa5; 16];
    bytes[..8].copy_from_slice(&fraction.to_le_bytes());
    bytes[8..10].copy_from_slice(&head.to_le_bytes());
    bytes
}

#[test]
#[cfg(target_arch = "x86_64")]
fn long_doubles_are_exact() {
    let (one, two) = (extended(false, 0, 1 << 63), extended(false, 1, 1 << 63));
    let minus_three = extended(true, 1, 3 << 62);
    let least = extended(false, -63, 1 << 63); // the last of the 64 bits that a double would lose
    let value = |op, old: [u8; 16], operand: [u8; 16]| {
        once(code(12, op, AtomicKind::Update, 1), 0, &old, &operand).0[..10].to_vec()
    };
    assert_eq!(value(op::SUM, one, least), extended(false, 0, (1 << 63) + 1)[..10]);
    assert_eq!(value(op::DIFF, one, least), extended(false, -1, u64::MAX - 1)[..10]);
    assert_eq!(value(op::DIFF, one, two), extended(true, 0, 1 << 63)[..10]);
    assert_eq!(value(op::PROD, two, minus_three), extended(true, 2, 3 << 62)[..10]);
    assert_eq!(value(op::MIN, two, minus_three), minus_three[..10]);
    assert_eq!(value(op::MAX, minus_three, two), two[..10]);
    assert_eq!(value(op::LXOR, extended(true, -0x3fff, 0), two), one[..10]);
    // the bytes that mean nothing do not keep equal values from being equal
    let mut same = one;
    same[12] = 0;
    let swap = [two, same].concat();
    assert_eq!(once(code(12, op::CSWAP, AtomicKind::Compare, 1), 0, &one, &swap).0, two);
    let both = [one, two].concat();
    let (after, _) = once(code(13, op::SUM, AtomicKind::Update, 1), 16, &both, &both);
    assert_eq!((&after[..10], &after[16..26]), (&two[..10], &extended(false, 2, 1 << 63)[..10]));
}

#[test]
fn what_is_not_defined_is_refused() {
    let answer = |datatype, op, kind| {
        let mut target = [0u8; 32];
        // SAFETY: the target has room for one element of any datatype.
        unsafe { apply(code(datatype, op, kind, 1), target.as_mut_ptr(), &[0; 64], &mut Vec::new()) }
    };
    use AtomicKind::{Compare, Fetch, Update};
    for (datatype, op, kind) in [
        (16, op::SUM, Update),
        (255, op::SUM, Update),
        (9, op::BOR, Update),
        (9, op::MSWAP, Compare),
        (10, op::MIN, Update),
        (11, op::CSWAP_LE, Compare),
        (5, op::READ, Update),
        (5, op::CSWAP, Fetch),
        (5, op::SUM, Compare),
        (5, 20, Update),
        (5, 255, Compare),
    ] {
        assert!(!supported(code(datatype, op, kind, 1)));
        assert_eq!(answer(datatype, op, kind), Err(Status::Unsupported), "{datatype} {op}");
    }
    for datatype in 0..=15 {
        assert_eq!(answer(datatype, op::WRITE, Update), Ok(()), "{datatype}");
        assert_eq!(answer(datatype, op::CSWAP, Compare), Ok(()), "{datatype}");
    }
    let mut target = [7u8; 8];
    // SAFETY: one element of 8 bytes.
    let short = unsafe { apply(code(7, op::SUM, Update, 1), target.as_mut_ptr(), &[0; 7], &mut Vec::new()) };
    assert_eq!((short, target), (Err(Status::Range), [7; 8]));
}

/// Threads add to the same elements: aligned and not, each width, and nothing is lost.
#[test]
fn concurrent_sums_are_all_there() {
    const EACH: u32 = 2000;
    for (datatype, bits, _) in INTEGERS {
        for at in [0, 1] {
            let size = bits as usize / 8;
            let mut memory = [0u128; 4];
            let target = memory.as_mut_ptr().cast::<u8>().wrapping_add(at) as usize;
            std::thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| {
                        let one = bytes_of(&[1], size);
                        for _ in 0..EACH {
                            let code = code(datatype, op::SUM, AtomicKind::Update, 1);
                            // SAFETY: the element lies in `memory`, which only these threads use.
                            unsafe { apply(code, target as *mut u8, &one, &mut Vec::new()) }.unwrap();
                        }
                    });
                }
            });
            let mut sum = [0; 16];
            // SAFETY: the threads are done.
            unsafe { std::ptr::copy_nonoverlapping(target as *const u8, sum.as_mut_ptr(), size) };
            let expected = u128::from(3 * EACH) & (u128::MAX >> (128 - bits));
            assert_eq!(u128::from_le_bytes(sum), expected, "{bits} bits at {at}");
        }
    }
}
