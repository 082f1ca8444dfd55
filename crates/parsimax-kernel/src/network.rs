//! Networks that sort: which places are compared and exchanged, in which order, whatever an exchange may be.
//!
//! Batcher's merges of 1, 2, 4 and 8 entries. Each macro hands the pairs of places to the `exchange!` of its user, which
//! says what comes first, the smaller or the larger.

/// Sorts eight places.
macro_rules! sort_eight {
    ($exchange:ident, $y:ident) => {
        $exchange!($y: 0 1, 2 3, 4 5, 6 7, 0 2, 1 3, 4 6, 5 7, 1 2, 5 6);
        $exchange!($y: 0 4, 1 5, 2 6, 3 7, 2 4, 3 5, 1 2, 3 4, 5 6);
    };
}

/// Sorts sixteen places.
macro_rules! sort_sixteen {
    ($exchange:ident, $y:ident) => {
        $exchange!($y: 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
        $exchange!($y: 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15, 1 2, 5 6, 9 10, 13 14);
        $exchange!($y: 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15, 2 4, 3 5, 10 12, 11 13);
        $exchange!($y: 1 2, 3 4, 5 6, 9 10, 11 12, 13 14);
        $exchange!($y: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15, 4 8, 5 9, 6 10, 7 11);
        $exchange!($y: 2 4, 3 5, 6 8, 7 9, 10 12, 11 13, 1 2, 3 4, 5 6, 7 8, 9 10, 11 12, 13 14);
    };
}

pub(super) use {sort_eight, sort_sixteen};
