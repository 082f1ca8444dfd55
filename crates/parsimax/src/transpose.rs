//! Matrices that are turned where they are, with memory for a tile only.
//!
//! A few long rows become columns in three steps: every row is cut into tiles, the tiles are moved so that those of the
//! same columns lie together, and each such group of tiles is turned by itself. What is left at the ends of the rows when
//! they are cut waits elsewhere until its place is free.

/// Replaces `rows` rows of `len` entries, one behind the other, by `len` rows of `rows` entries. `room` is how many
/// entries may be copied at a time.
pub(crate) fn in_place<T: Copy + Default>(data: &mut [T], rows: usize, len: usize, room: usize) {
    let tile = (room / 2 / rows).clamp(1, len);
    let (count, whole) = (len / tile, len / tile * tile);
    let mut ends = Vec::with_capacity(rows * (len - whole));
    for row in data.chunks_exact(len) {
        ends.extend_from_slice(&row[whole..]);
    }
    for row in 1..rows {
        data.copy_within(row * len..row * len + whole, row * whole);
    }
    let mut buffer = vec![T::default(); rows * tile];
    let (tiles, rest) = data.split_at_mut(rows * whole);
    gather(tiles, rows, count, &mut buffer[..tile]);
    for group in tiles.chunks_exact_mut(rows * tile) {
        buffer.copy_from_slice(group);
        turn(&buffer, rows, group);
    }
    turn(&ends, rows, rest);
}

/// Moves tile `j` of row `r` from place `r·count + j` to place `j·rows + r`, along the cycles of that permutation.
fn gather<T: Copy>(data: &mut [T], rows: usize, count: usize, carried: &mut [T]) {
    let tile = carried.len();
    let mut moved = vec![false; rows * count];
    for start in 0..moved.len() {
        if moved[start] {
            continue;
        }
        let mut place = start;
        carried.copy_from_slice(&data[start * tile..][..tile]);
        while !moved[place] {
            moved[place] = true;
            place = place % count * rows + place / count;
            carried.swap_with_slice(&mut data[place * tile..][..tile]);
        }
    }
}

/// Writes the columns of `from` one behind the other.
fn turn<T: Copy>(from: &[T], rows: usize, to: &mut [T]) {
    let len = from.len() / rows;
    for (column, to) in to.chunks_exact_mut(rows).enumerate() {
        to.iter_mut().enumerate().for_each(|(row, to)| *to = from[row * len + column]);
    }
}

#[cfg(test)]
mod tests {
    use super::in_place;

    #[test]
    fn rows_become_columns() {
        for (rows, len) in [(1, 7), (2, 1), (2, 9), (3, 100), (5, 64), (16, 37), (100, 3)] {
            for room in [1, 2, 20, 64, 1000, 1 << 20] {
                let mut data: Vec<usize> = (0..rows * len).collect();
                in_place(&mut data, rows, len, room);
                let want: Vec<usize> = (0..len).flat_map(|j| (0..rows).map(move |r| r * len + j)).collect();
                assert_eq!(data, want, "{rows} × {len}, {room}");
            }
        }
    }
}
