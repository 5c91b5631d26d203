//! Who is at fault where a graph breaks a spec: the text that it was read from, or else the compiler. Flows
//! in: wrong graphs; flows out: the errors of the functions that take graphs of users.

use monoglot_codegen::lower;
use monoglot_device::open;
use monoglot_engine::{backend, compile};
use monoglot_uop::spec::{verify_kernel, verify_tensor};
use monoglot_uop::text::{parse, parse_many};
use monoglot_uop::*;

/// No END closes the range.
const KERNEL: &str = "r = RANGE[7, LOOP] 4\nSINK[\"open\"] r\n";
/// Nothing stores an index.
const TENSOR: &str = "x = PARAM[0, index, NULL] (41,)\nSINK x\n";

fn is_the_texts<T>(given: Result<T>, stage: &str) {
    let error = given.err().expect("the graph breaks its spec");
    assert!(matches!(error.kind(), ErrorKind::Text { .. }), "{error}");
    let said = error.to_string();
    let wanted = format!("the text is no graph of the {stage} stage:\n");
    assert!(said.starts_with(&wanted), "{said}");
}

#[test]
fn a_text_is_at_fault_for_its_graph() {
    is_the_texts(verify_kernel(parse(KERNEL).unwrap()), "kernel");
    is_the_texts(verify_tensor(parse(TENSOR).unwrap()), "tensor");
    let roots = parse_many(TENSOR).unwrap();
    is_the_texts(verify_tensor(UOp::sink(&roots)), "tensor");
    is_the_texts(compile(roots[0].src()), "tensor");
    let null = open(Device::new("NULL")).unwrap();
    let target = null.target();
    let lowered = lower(
        &parse(KERNEL).unwrap(),
        target,
        backend(target.dialect),
        Some(&[]),
        &mut |_, _| {},
    );
    is_the_texts(lowered, "kernel");
}

#[test]
fn the_compiler_is_at_fault_for_all_others() {
    let open = UOp::range(5, 11, AxisType::Loop);
    let kernel = UOp::sink(&[open]).with_arg(Arg::Kernel(Default::default()));
    let error = verify_kernel(kernel).expect_err("no END closes a range");
    assert!(matches!(error.kind(), ErrorKind::Verify { .. }), "{error}");
    assert!(error.to_string().contains("a bug in the compiler"));
}
