//! Allocation and the checker of it. Flows in: small codes, random ones, and allocated ones that were damaged; flows
//! out: whether the checker passes what is right, whether it runs as before, and whether the checker sees damage.

mod build;
mod planted;
mod random;
mod run;
mod small;
