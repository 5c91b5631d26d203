//! Ten bugs that an allocator could have. Flows in: code that was allocated rightly; flows out: whether the checker sees
//! each bug, planted there.
