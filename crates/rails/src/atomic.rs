//! Atomic operations on this process's memory, as a peer asks for them.
//!
//! Each element is changed at once: by the processor's own compare-and-exchange where it is naturally aligned and no wider than
//! the processor can exchange, so that the program may use CPU atomics on the same memory; under one process-wide lock
//! otherwise, which is atomic among the peers of all workers. An operation on several elements is atomic for each of them only.
//!
//! | datatypes | operations |
//! |---|---|
//! | 8 to 128-bit integers | all; arithmetic wraps |
//! | float, double, long double (80-bit, x86-64 only) | all but the bitwise ones |
//! | complex of these | sum, difference, product, logical ones, read, write, swap if equal or not |
//!
//! The numbers are libfabric's `enum fi_datatype` and `enum fi_op`. Files: `word` how an element is exchanged, `element` what
//! the operations mean for each type.

mod element;
#[cfg(test)]
mod tests;
mod word;

use element::{Complex, Element, Extended};
use polyrail_core::frame::{AtomicCode, AtomicKind, Status};
use word::Word;

/// `enum fi_op`, as numbers: they come from peers.
mod op {
    pub const MIN: u8 = 0;
    pub const MAX: u8 = 1;
    pub const SUM: u8 = 2;
    pub const PROD: u8 = 3;
    pub const LOR: u8 = 4;
    pub const LAND: u8 = 5;
    pub const BOR: u8 = 6;
    pub const BAND: u8 = 7;
    pub const LXOR: u8 = 8;
    pub const BXOR: u8 = 9;
    pub const READ: u8 = 10;
    pub const WRITE: u8 = 11;
    pub const CSWAP: u8 = 12;
    pub const CSWAP_NE: u8 = 13;
    pub const CSWAP_LE: u8 = 14;
    pub const CSWAP_LT: u8 = 15;
    pub const CSWAP_GE: u8 = 16;
    pub const CSWAP_GT: u8 = 17;
    pub const MSWAP: u8 = 18;
    pub const DIFF: u8 = 19;
}

/// Calls `$f::<T>($args)` for the type `T` that `enum fi_datatype` numbers, or is `$none`.
macro_rules! by_type {
    ($datatype:expr, $f:ident($($arg:expr),*), $none:expr) => {
        match $datatype {
            0 => $f::<i8>($($arg),*),
            1 => $f::<u8>($($arg),*),
            2 => $f::<i16>($($arg),*),
            3 => $f::<u16>($($arg),*),
            4 => $f::<i32>($($arg),*),
            5 => $f::<u32>($($arg),*),
            6 => $f::<i64>($($arg),*),
            7 => $f::<u64>($($arg),*),
            8 => $f::<f32>($($arg),*),
            9 => $f::<f64>($($arg),*),
            10 => $f::<Complex<f32>>($($arg),*),
            11 => $f::<Complex<f64>>($($arg),*),
            12 if Extended::EXISTS => $f::<Extended>($($arg),*),
            13 if Extended::EXISTS => $f::<Complex<Extended>>($($arg),*),
            14 => $f::<i128>($($arg),*),
            15 => $f::<u128>($($arg),*),
            _ => $none,
        }
    };
}

fn bytes<E: Element>() -> Option<usize> {
    Some(size_of::<E::Word>())
}

/// Bytes in one element; none for a datatype on which nothing can be done here.
pub fn element_size(datatype: u8) -> Option<usize> {
    by_type!(datatype, bytes(), None)
}

/// Whether the operation leaves the memory as it is.
pub fn is_read(code: AtomicCode) -> bool {
    code.op == op::READ
}

fn defined<E: Element>(op: u8) -> bool {
    E::defines(op)
}

/// Whether the operation exists on the datatype, in that form. `count` does not matter.
pub fn supported(code: AtomicCode) -> bool {
    let form = match code.kind {
        AtomicKind::Update => matches!(code.op, op::MIN..=op::BXOR | op::WRITE | op::DIFF),
        AtomicKind::Fetch => matches!(code.op, op::MIN..=op::WRITE | op::DIFF),
        AtomicKind::Compare => matches!(code.op, op::CSWAP..=op::MSWAP),
    };
    form && by_type!(code.datatype, defined(code.op), false)
}

/// Does the operation on `code.count` elements from `target`. `operands` holds as many operands, then, for a comparing
/// operation, as many comparands; a read has none, or ignores them. The values before are appended to `result` if the
/// operation returns them.
///
/// # Errors
/// [`Status::Unsupported`] for an operation that is not [`supported`]; [`Status::Range`] when there are not enough operands.
/// Nothing was changed then.
///
/// # Safety
/// `target` is valid for reads and writes of `code.count` elements (see [`element_size`]; a read only reads), aligned or not,
/// and nobody holds a Rust reference to them meanwhile.
pub unsafe fn apply(
    code: AtomicCode,
    target: *mut u8,
    operands: &[u8],
    result: &mut Vec<u8>,
) -> Result<(), Status> {
    if !supported(code) {
        return Err(Status::Unsupported);
    }
    // SAFETY: by the caller's promise; the type is the datatype's.
    unsafe { by_type!(code.datatype, run(code, target, operands, result), Err(Status::Unsupported)) }
}

/// [`apply`] for one type.
///
/// # Safety
/// As for [`apply`].
unsafe fn run<E: Element>(
    code: AtomicCode,
    target: *mut u8,
    operands: &[u8],
    result: &mut Vec<u8>,
) -> Result<(), Status> {
    let (size, count) = (size_of::<E::Word>(), code.count as usize);
    let (operands, comparands) = match (code.kind, code.op) {
        (AtomicKind::Compare, _) => operands.split_at_checked(count * size).ok_or(Status::Range)?,
        (_, op::READ) => (&[][..], &[][..]),
        _ => (operands, &[][..]),
    };
    let lacks = |bytes: &[u8]| bytes.len() < count * size;
    if (code.op != op::READ && lacks(operands)) || (code.kind == AtomicKind::Compare && lacks(comparands)) {
        return Err(Status::Range);
    }
    let element = |bytes: &[u8], i: usize| {
        bytes.get(i * size..(i + 1) * size).map_or(E::ZERO, |one| E::of(E::Word::get(one)))
    };
    for i in 0..count {
        let (operand, comparand) = (element(operands, i), element(comparands, i));
        let next = |old| E::next(code.op, E::of(old), operand, comparand).map(E::word);
        // SAFETY: element i is one of the `count` valid ones.
        let before = unsafe { E::Word::update(target.add(i * size), next) };
        if code.kind != AtomicKind::Update {
            before.put(result);
        }
    }
    Ok(())
}
