//! Captured functions against the functions themselves, a few. Flows in: seeds; flows out: nothing, where none
//! differs.

use monoglot_fuzz::check::Tally;
use monoglot_fuzz::replay::replay;

#[test]
fn captured_functions_give_what_the_functions_give() {
    monoglot_device::Config {
        device: Some("INTERP".into()),
        ..monoglot_device::Config::default()
    }
    .set();
    let mut tell = |_: &str| {};
    let mut tally = Tally::new(&mut tell);
    replay(0..60, 12, "INTERP", &mut tally).expect("the device opens");
    // Storage of an input that another root's value took over.
    replay(11_191..11_192, 25, "INTERP", &mut tally).expect("the device opens");
    // Bodies of functions whose last arguments fold away.
    replay(494..495, 25, "INTERP", &mut tally).expect("the device opens");
    replay(682..683, 25, "INTERP", &mut tally).expect("the device opens");
    assert!(tally.failures.is_empty(), "{:#?}", tally.failures);
    assert_eq!(tally.compared, 63);
}
