//! Bytes to a call: what the fuzz targets and the plain fuzz test share.
