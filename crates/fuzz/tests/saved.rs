//! Saved programs whose folders are changed, a few hundred. Flows in: seeds; flows out: nothing, where each is
//! refused by a typed error or runs within its storage.

use monoglot_fuzz::check::Tally;
use monoglot_fuzz::saved::{own_folder, saved};

#[test]
fn changed_folders_are_refused_or_run() {
    let folder = own_folder();
    let mut tell = |_: &str| {};
    let mut tally = Tally::new(&mut tell);
    let outcomes = saved(0..300, &folder, &mut tally).expect("programs can be saved");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    // Both happen, or the changes are no test.
    assert!(outcomes.refused > 100, "{outcomes:?}");
    assert!(outcomes.loaded > 10, "{outcomes:?}");
}
