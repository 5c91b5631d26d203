//! The workloads' names. Flows in: the list; flows out: what is wrong with it.

use super::*;

#[test]
fn names_differ_and_fit_the_table() {
    let mut names: Vec<&str> = all().iter().map(|w| w.name).collect();
    assert!(names.iter().all(|n| n.len() <= 28), "{names:?}");
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
