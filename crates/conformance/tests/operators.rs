//! Cases that were wrong once, in `tests/operators`: on the evaluator of the tensor graph and on
//! every device that runs without hardware of its own. Flows in: those cases; flows out: a failed
//! test that names what failed where.

use monoglot_conformance::{Options, run};
use std::path::Path;

#[test]
fn what_was_wrong_once_is_right_everywhere() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/operators");
    let on = |device: &str| Options {
        device: Some(device.into()),
        ..Options::default()
    };
    let oracle = Options {
        oracle: true,
        ..Options::default()
    };
    for options in [oracle, on("CPU"), on("INTERP"), on("INTERP:GPU")] {
        let mut lines = Vec::new();
        let report =
            run(&folder, &options, &mut |l| lines.push(l.to_string())).expect("the folder is read");
        let wrong = report.failed.len() + report.unsupported.len();
        assert!(report.passed > 0 && wrong == 0, "{options:?}: {lines:#?}");
    }
}
