//! The first-run wizard: claim the box, load a model, get a key. Step 1 is open to whoever has the claim code; the rest needs the
//! session it made.

pub(crate) mod claim;
pub(crate) mod done;
pub(crate) mod load;
pub(crate) mod model;
