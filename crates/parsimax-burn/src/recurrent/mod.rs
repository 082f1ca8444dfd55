//! Recurrent layers whose whole sequence is one operation.
