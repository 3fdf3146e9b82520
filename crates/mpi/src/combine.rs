//! One operation of a reduction on two buffers: the MPI's own, and a few of the commonest without its call.

use std::ffi::c_int;
use std::sync::OnceLock;

use polyrail_pmpi::{Flavour, abi, object};

use crate::data::Kind;
use crate::library::{Failed, op_commutative, reduce_local};

/// An operation on elements of a type.
#[derive(Clone, Copy)]
pub struct Combine {
    operation: usize,
    kind: Kind,
    own: Option<Own>,
}

/// Takes what stands at the first place, and puts it, combined, to the second.
type Own = unsafe fn(*const u8, *mut u8, usize);

/// # Safety
/// Both have `count` numbers, aligned.
unsafe fn each<T: Copy>(from: *const u8, into: *mut u8, count: usize, combine: impl Fn(T, T) -> T) {
    let (from, into) = (from.cast::<T>(), into.cast::<T>());
    for at in 0..count {
        // SAFETY: as the caller says
        unsafe { into.add(at).write(combine(from.add(at).read(), into.add(at).read())) };
    }
}

macro_rules! own {
    ($name:ident, $type:ty, $combine:expr) => {
        /// # Safety
        /// Both have `count` numbers, aligned.
        unsafe fn $name(from: *const u8, into: *mut u8, count: usize) {
            // SAFETY: as the caller says
            unsafe { each::<$type>(from, into, count, $combine) }
        }
    };
}

own!(sum_u32, u32, u32::wrapping_add);
own!(sum_u64, u64, u64::wrapping_add);
own!(sum_f32, f32, |a, b| a + b);
own!(sum_f64, f64, |a, b| a + b);
own!(max_i32, i32, |a: i32, b| a.max(b));
own!(max_i64, i64, |a: i64, b| a.max(b));
own!(min_i32, i32, |a: i32, b| a.min(b));
own!(min_i64, i64, |a: i64, b| a.min(b));

/// The handles of what has an own way here. Of numbers with a point only the sum: what the largest is where one is not a number, the
/// MPIs see differently.
struct Handles {
    operations: [usize; 3],
    types: Vec<(usize, [Option<Own>; 3])>,
}

const INT: [Option<Own>; 3] = [Some(sum_u32), Some(max_i32), Some(min_i32)];
const LONG: [Option<Own>; 3] = [Some(sum_u64), Some(max_i64), Some(min_i64)];
const FLOAT: [Option<Own>; 3] = [Some(sum_f32), None, None];
const DOUBLE: [Option<Own>; 3] = [Some(sum_f64), None, None];

fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| {
        let (operations, types) = match abi().flavour {
            Flavour::Mpich => (
                [0x5800_0003, 0x5800_0001, 0x5800_0002],
                [0x4c00_0405, 0x4c00_0439, 0x4c00_0807, 0x4c00_0809, 0x4c00_083a, 0x4c00_040a, 0x4c00_080b],
            ),
            Flavour::Standard => ([0x21, 0x23, 0x22], [0x209, 0x250, 0x20a, 0x20b, 0x258, 0x210, 0x214]),
            Flavour::OpenMpi => (
                [c"ompi_mpi_op_sum", c"ompi_mpi_op_max", c"ompi_mpi_op_min"].map(object),
                [
                    c"ompi_mpi_int",
                    c"ompi_mpi_int32_t",
                    c"ompi_mpi_long",
                    c"ompi_mpi_long_long_int",
                    c"ompi_mpi_int64_t",
                    c"ompi_mpi_float",
                    c"ompi_mpi_double",
                ]
                .map(object),
            ),
        };
        let own = [INT, INT, LONG, LONG, LONG, FLOAT, DOUBLE];
        Handles { operations, types: types.into_iter().zip(own).filter(|(handle, _)| *handle != 0).collect() }
    })
}

/// Elements of a reduction, one behind the other, with nothing between.
#[derive(Clone, Copy)]
pub struct Terms {
    /// How many.
    pub count: usize,
    /// Bytes from one to the next.
    pub extent: usize,
    /// What is done with them.
    pub combine: Combine,
}

impl Terms {
    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.count * self.extent
    }

    /// As many of them as so many bytes are.
    pub fn of(&self, bytes: usize) -> Self {
        Self { count: bytes / self.extent, ..*self }
    }
}

impl Combine {
    /// The operation of a handle on a type.
    pub fn new(operation: usize, kind: Kind) -> Self {
        let operation = abi().handle(operation);
        let handles = handles();
        let which = handles.operations.iter().position(|handle| *handle == operation);
        let own = which.and_then(|which| {
            let found = handles.types.iter().find(|(handle, _)| *handle == kind.handle);
            found.and_then(|(_, own)| own[which])
        });
        Self { operation, kind, own }
    }

    /// Whether the order of ranks does not matter.
    ///
    /// # Errors
    /// It is no operation.
    pub fn is_commutative(&self) -> Result<bool, Failed> {
        if self.own.is_some() {
            return Ok(true);
        }
        let mut flag: c_int = 0;
        // SAFETY: the program's handle, and a place for the answer
        unsafe { op_commutative(self.operation, &mut flag)? };
        Ok(flag != 0)
    }

    /// `into` becomes `from` combined with it, `from` on the left.
    ///
    /// # Safety
    /// Both have `count` elements, aligned for their type.
    ///
    /// # Errors
    /// The MPI does not know this operation on this type.
    pub unsafe fn apply(&self, from: *const u8, into: *mut u8, count: usize) -> Result<(), Failed> {
        let aligned = (from as usize | into as usize).is_multiple_of(self.kind.size);
        match self.own {
            Some(own) if aligned => {
                // SAFETY: as the caller says, and these types are as aligned as they are long
                unsafe { own(from, into, count) };
                Ok(())
            }
            // SAFETY: as the caller says
            _ => unsafe {
                reduce_local(from.cast(), into.cast(), count as c_int, self.kind.handle, self.operation)
            },
        }
    }
}
