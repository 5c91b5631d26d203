//! `monoglot run` from outside. Flows in: a saved program and arguments; flows out: text, files, exit codes.

use monoglot::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of a test's own, which goes when this does.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program that counts its calls, in `program` of the folder.
fn saved(name: &str) -> Result<Place> {
    let path = std::env::temp_dir().join(format!("monoglot-run-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).expect("a folder of ours");
    let place = Place(path);
    let count = Tensor::zeros([1]);
    let step = jit(|x: Tensor, scale: Tensor| {
        count.assign(&count + 1.0);
        (x * scale + &count, count.clone())
    })?;
    let program = step.program((&Tensor::zeros([2, 3]), 1.0f32))?;
    let program = program.with_inputs(["x", "scale"])?;
    let program = program.with_outputs(["y", "calls"])?;
    program
        .named([("count", &count)])?
        .save(place.0.join("program"))?;
    Ok(place)
}

fn monoglot(place: &Path, args: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monoglot"));
    command
        .current_dir(place)
        .env_remove("DEV")
        .env_remove("DEBUG");
    let output = command.arg("run").args(args).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ok = output.status.success();
    (ok, text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_is_missing_is_told_with_how_to_give_it() -> Result<()> {
    let place = saved("missing")?;
    let (ok, _, told) = monoglot(&place.0, &["program"]);
    assert!(!ok);
    for part in [
        "no input is given for x, scale",
        "x: f32(2, 3) on CPU",
        "--input x=",
        "--random",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let (ok, _, told) = monoglot(&place.0, &["program", "--input", "z=1"]);
    assert!(!ok && told.contains("takes no \"z\""), "{told}");
    for [input, what] in [["x=1", "given twice"], ["x=", "no file"]] {
        let args = ["program", "--input", "x=2", "--input", input];
        let (ok, _, told) = monoglot(&place.0, &args);
        assert!(!ok && told.contains(what), "{told}");
    }
    let (ok, _, told) = monoglot(&place.0, &["nowhere"]);
    assert!(!ok && told.contains("no such folder"), "{told}");
    assert!(!told.contains(".rs:"), "a line of ours: {told}");
    let args = ["program", "--input", "x=none.npy", "--input", "scale=1"];
    let (ok, _, told) = monoglot(&place.0, &args);
    assert!(!ok && told.contains("none.npy"), "{told}");
    Ok(())
}

#[test]
fn files_go_in_and_come_out() -> Result<()> {
    let place = saved("files")?;
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend((0..6u8).flat_map(|k| f32::from(k).to_le_bytes()));
    std::fs::write(place.0.join("x.npy"), bytes).expect("written");
    let inputs = ["--input", "x=x.npy", "--input", "scale=10"];
    let args = [
        &["program"],
        &inputs[..],
        &["--output", "y.safetensors", "--json"],
    ]
    .concat();
    let (ok, text, told) = monoglot(&place.0, &args);
    assert!(ok, "{told}");
    let record: serde_json::Value = serde_json::from_str(&text).expect("an object");
    assert_eq!(record["given"][0]["values"][5], 51.0);
    assert_eq!(record["given"][0]["shape"], serde_json::json!([2, 3]));
    assert_eq!(record["states"], 1);
    let bytes = std::fs::read(place.0.join("y.safetensors")).expect("written");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("of this format");
    assert_eq!(
        file.tensor("y").expect("there").data()[20..],
        51.0f32.to_le_bytes()
    );
    // What it wrote is an input again, and its states are kept where that is asked for.
    let inputs = ["--input", "x=y.safetensors#y", "--input", "scale=1"];
    let more = ["--repeat", "3", "--save", "again"];
    let (ok, text, told) = monoglot(&place.0, &[&["program"], &inputs[..], &more[..]].concat());
    assert!(ok, "{told}");
    for part in [
        "takes    x: f32(2, 3)",
        "gives    y:",
        "1 states",
        "called   3 times",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // A name that the file has not is no other one's.
    let bytes = [0; 24];
    let only = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 3], &bytes);
    let only = safetensors::serialize([("only", only.expect("it fits"))], None).expect("bytes");
    std::fs::write(place.0.join("one.safetensors"), only).expect("written");
    for [file, has] in [["y", "it has calls, y,"], ["one", "it has only,"]] {
        let input = format!("x={file}.safetensors#z");
        let args = ["program", "--input", &input, "--input", "scale=1"];
        let (ok, _, told) = monoglot(&place.0, &args);
        assert!(
            !ok && told.contains("has no \"z\"") && told.contains(has),
            "{told}"
        );
    }
    // What somebody put into a program's folder stays there.
    std::fs::write(place.0.join("again/notes.txt"), "mine").expect("written");
    let inputs = ["--input", "x=x.npy", "--input", "scale=1"];
    let more = ["--save", "again"];
    let (ok, _, told) = monoglot(&place.0, &[&["program"], &inputs[..], &more[..]].concat());
    assert!(!ok && told.contains("notes.txt"), "{told}");
    assert!(place.0.join("again/notes.txt").exists());
    std::fs::remove_file(place.0.join("again/notes.txt")).expect("it is there");
    let again = Program::load(place.0.join("again"))?;
    let count = again.tensors().next().map(|(_, t, _)| t.clone());
    assert_eq!(count.expect("it has one").to_vec::<f32>()?, [3.0]);
    Ok(())
}

#[test]
fn inputs_can_be_made_up() -> Result<()> {
    let place = saved("random")?;
    let args = ["program", "--random", "7", "--json"];
    let (ok, first, told) = monoglot(&place.0, &args);
    assert!(ok, "{told}");
    let (_, second, _) = monoglot(&place.0, &args);
    let values = |text: &str| {
        let record: serde_json::Value = serde_json::from_str(text).expect("an object");
        record["given"][0]["values"].clone()
    };
    assert_eq!(values(&first), values(&second));
    let (ok, _, told) = monoglot(&place.0, &["program", "--random", "7", "--output", "y.npy"]);
    assert!(!ok && told.contains("a .npy holds one array"), "{told}");
    Ok(())
}

#[test]
fn elements_are_told_as_they_are() -> Result<()> {
    let place = saved("elements")?;
    let folder = place.0.join("whole");
    let step = jit(|x: Tensor| {
        let half = x.cast(DType::F32) / 2.0;
        (&x + 1, x.gt(0), half.log())
    })?;
    let big = Tensor::new(&[1i64 << 62, -2, 0], [3]);
    step.program(&big)?.save(&folder)?;
    let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }";
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.as_bytes());
    [1i64 << 62, -2, 0]
        .iter()
        .for_each(|n| file.extend(n.to_le_bytes()));
    std::fs::write(place.0.join("x.npy"), &file).expect("ours");
    let input = Program::load(&folder)?.inputs()[0].name().to_string();
    let input = format!("{input}=x.npy");
    let (ok, told, errors) = monoglot(&place.0, &["whole", "--input", &input]);
    assert!(ok, "{errors}");
    for line in [
        "4611686018427387905 -1 1",
        "true false false",
        "42.28198 NaN -inf",
    ] {
        assert!(told.contains(line), "{told}");
    }
    let (_, told, _) = monoglot(&place.0, &["whole", "--input", &input, "--json"]);
    assert!(told.contains("[4611686018427387905,-1,1]"), "{told}");
    assert!(told.contains("[true,false,false]"), "{told}");
    assert!(told.contains("\"NaN\",\"-inf\"]"), "{told}");
    // Of another dtype.
    let of_x = ["program", "--input", "x=x.npy", "--input", "scale=1"];
    let (ok, _, errors) = monoglot(&place.0, &of_x);
    assert!(
        !ok && errors.contains("is of i64, and the program takes x: f32"),
        "{errors}"
    );
    Ok(())
}
