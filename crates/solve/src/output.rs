//! Files: the solution for ParaView, and a picture of it.

use crate::gather::Solution;
use std::io::{self, Write};

/// Writes the solution and how far it is above the obstacle as VTK image data, which ParaView, VisIt and PyVista open: XML with the numbers as they are, appended
/// (VTK File Formats, "XML File Formats", ImageData). All points, with those of the boundary.
///
/// # Errors
/// Those of `to`.
pub fn write_vti(solution: &Solution, mut to: impl Write) -> io::Result<()> {
    let problem = &solution.task.problem;
    let last = problem.n + 1;
    let (first, h, bytes) = (problem.place(0), problem.h(), solution.whole.u.len() * 8);
    let second = 8 + bytes;
    write!(
        to,
        "<?xml version=\"1.0\"?>\n\
         <VTKFile type=\"ImageData\" version=\"1.0\" byte_order=\"LittleEndian\" header_type=\"UInt64\">\n\
         <ImageData WholeExtent=\"0 {last} 0 {last} 0 {last}\" Origin=\"{first} {first} {first}\" Spacing=\"{h} {h} {h}\">\n\
         <Piece Extent=\"0 {last} 0 {last} 0 {last}\">\n<PointData Scalars=\"u\">\n\
         <DataArray type=\"Float64\" Name=\"u\" format=\"appended\" offset=\"0\"/>\n\
         <DataArray type=\"Float64\" Name=\"above the obstacle\" format=\"appended\" offset=\"{second}\"/>\n\
         </PointData>\n</Piece>\n</ImageData>\n<AppendedData encoding=\"raw\">\n_"
    )?;
    let mut numbers = |values: &mut dyn Iterator<Item = f64>| {
        to.write_all(&(bytes as u64).to_le_bytes())?;
        for value in values {
            to.write_all(&value.to_le_bytes())?;
        }
        Ok::<_, io::Error>(())
    };
    numbers(&mut solution.whole.u.iter().copied())?;
    let above = solution.whole.u.iter().zip(&solution.whole.phi).map(|(u, phi)| u - phi);
    numbers(&mut above.map(|above| above.min(f64::from(f32::MAX))))?;
    to.write_all(b"\n</AppendedData>\n</VTKFile>\n")?;
    to.flush()
}
