//! How many bytes a tensor takes: one row per number format of ggml.

use super::Fault;

/// Number of the format, values in a block, bytes of a block. Numbers missing here were given up or are newer than this table.
const FORMATS: &[(u32, u64, u64)] = &[
    (0, 1, 4),      // F32
    (1, 1, 2),      // F16
    (2, 32, 18),    // Q4_0
    (3, 32, 20),    // Q4_1
    (6, 32, 22),    // Q5_0
    (7, 32, 24),    // Q5_1
    (8, 32, 34),    // Q8_0
    (9, 32, 36),    // Q8_1
    (10, 256, 84),  // Q2_K
    (11, 256, 110), // Q3_K
    (12, 256, 144), // Q4_K
    (13, 256, 176), // Q5_K
    (14, 256, 210), // Q6_K
    (15, 256, 292), // Q8_K
    (16, 256, 66),  // IQ2_XXS
    (17, 256, 74),  // IQ2_XS
    (18, 256, 98),  // IQ3_XXS
    (19, 256, 50),  // IQ1_S
    (20, 32, 18),   // IQ4_NL
    (21, 256, 110), // IQ3_S
    (22, 256, 82),  // IQ2_S
    (23, 256, 136), // IQ4_XS
    (24, 1, 1),     // I8
    (25, 1, 2),     // I16
    (26, 1, 4),     // I32
    (27, 1, 8),     // I64
    (28, 1, 8),     // F64
    (29, 256, 56),  // IQ1_M
    (30, 1, 2),     // BF16
    (34, 256, 54),  // TQ1_0
    (35, 256, 66),  // TQ2_0
    (39, 32, 17),   // MXFP4
    (40, 64, 36),   // NVFP4
    (41, 128, 18),  // Q1_0
    (42, 64, 18),   // Q2_0
];

/// Bytes of a tensor of this shape (row length first). `None` for a format that is not in the table: its length cannot be known.
pub(super) fn tensor_bytes(format: u32, shape: &[u64]) -> Result<Option<u64>, Fault> {
    const ABSURD: Fault = Fault::Damaged("a tensor in it is larger than any disk");
    let values = shape.iter().try_fold(1u64, |product, &side| product.checked_mul(side)).ok_or(ABSURD)?;
    let Some(&(_, block, bytes)) = FORMATS.iter().find(|(number, ..)| *number == format) else { return Ok(None) };
    if !shape.first().copied().unwrap_or(1).is_multiple_of(block) {
        return Err(Fault::Damaged("a tensor's rows do not fit its number format"));
    }
    (values / block).checked_mul(bytes).ok_or(ABSURD).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_the_engine_computes() {
        assert_eq!(tensor_bytes(1, &[128, 64]), Ok(Some(16384)));
        assert_eq!(tensor_bytes(12, &[2048, 3]), Ok(Some(8 * 144 * 3)));
        assert_eq!(tensor_bytes(0, &[]), Ok(Some(4)));
        assert_eq!(tensor_bytes(99, &[128]), Ok(None));
        assert!(tensor_bytes(12, &[100, 3]).is_err());
        assert!(tensor_bytes(0, &[u64::MAX, 2]).is_err());
        assert!(tensor_bytes(0, &[u64::MAX / 2]).is_err());
    }
}
