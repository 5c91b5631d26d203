//! Folders that are not as they were written. Flows in: a saved program of which something is changed; flows
//! out: errors that name the file and what is wrong, and never anything worse.

use super::{Place, resealed};
use monoglot::prelude::*;
use std::fs;
use std::path::Path;

fn saved(name: &str) -> Result<Place> {
    let place = Place::new(name);
    let weight = Tensor::arange(0, 12, 1).cast(DType::F32).reshape([3, 4]);
    weight.realize()?;
    let count = Tensor::zeros([1]);
    let step = jit(|x: Tensor| {
        count.assign(&count + 1.0);
        x.matmul(&weight).relu() + &count
    })?;
    let program = step.program(Tensor::zeros([2, 3]))?.with_inputs(["x"])?;
    program.named([("weight", &weight)])?.save(place.path())?;
    Ok(place)
}

fn error(place: &Place) -> Error {
    match Program::load(place.path()) {
        Ok(program) => panic!("{program:?} was loaded"),
        Err(e) => e,
    }
}

/// What a change of a file is told as.
fn told(place: &Place, file: &str, change: impl FnOnce(&Path)) -> String {
    let path = place.path().join(file);
    let whole = fs::read(&path).expect("it was saved");
    change(&path);
    let error = error(place);
    let fits = matches!(
        error.kind(),
        ErrorKind::Format { .. } | ErrorKind::Io { .. } | ErrorKind::Memory { .. }
    );
    assert!(fits, "{error}");
    // What a manifest says may be told of the file that it is not true of.
    let named = match file {
        "program.json" => place.path().display().to_string(),
        _ => file.to_string(),
    };
    assert!(error.to_string().contains(&named), "{error}");
    let _ = fs::remove_file(&path);
    fs::write(&path, whole).expect("it is ours");
    assert!(Program::load(place.path()).is_ok(), "it is whole again");
    error.to_string()
}

const FILES: [&str; 5] = [
    "program.json",
    "program.txt",
    "weights.safetensors",
    "code-0.launches",
    "code-0.object",
];

#[test]
fn files_that_are_missing_cut_or_longer_are_named() -> Result<()> {
    let place = saved("cut")?;
    for file in FILES {
        let missing = told(&place, file, |path| fs::remove_file(path).unwrap());
        assert!(missing.contains("is missing"), "{missing}");
        told(&place, file, |path| fs::write(path, "").unwrap());
        told(&place, file, |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        });
        told(&place, file, |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes.push(b'}');
            fs::write(path, bytes).unwrap();
        });
    }
    Ok(())
}

#[test]
fn flipped_bits_are_found() -> Result<()> {
    let place = saved("flipped")?;
    for file in FILES {
        let length = fs::metadata(place.path().join(file)).expect("saved").len() as usize;
        for k in 0..8 {
            let told = told(&place, file, |path| {
                let mut bytes = fs::read(path).unwrap();
                bytes[k * (length - 1) / 7] ^= 1 << k;
                fs::write(path, bytes).unwrap();
            });
            // What can be read no more is told before its digest is known.
            let parsed = file.ends_with("safetensors") || file.ends_with("json");
            assert!(parsed || told.contains("digest"), "{told}");
        }
    }
    Ok(())
}

/// Numbers of the manifest that would be others of the same kind.
#[test]
fn flipped_numbers_of_a_manifest_are_found() -> Result<()> {
    let place = saved("numbers")?;
    let text = fs::read_to_string(place.path().join("program.json")).expect("saved");
    let digits: Vec<usize> = text
        .bytes()
        .enumerate()
        .filter_map(|(at, b)| b.is_ascii_digit().then_some(at))
        .collect();
    for at in digits {
        told(&place, "program.json", |path| {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            fs::write(path, bytes).unwrap();
        });
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn links_pipes_and_folders_are_no_files() -> Result<()> {
    let place = saved("links")?;
    let other = saved("links-to")?;
    for file in FILES {
        let link = told(&place, file, |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(other.path().join(file), path).unwrap();
        });
        assert!(link.contains("no regular file"), "{link}");
    }
    let path = place.path().join("program.txt");
    fs::remove_file(&path).expect("saved");
    fs::create_dir(&path).expect("made");
    assert!(error(&place).to_string().contains("no regular file"));
    Ok(())
}

/// The manifest with a part of its text replaced, which it has.
fn edited(place: &Place, from: &str, to: &str) -> String {
    told(place, "program.json", |path| {
        resealed(path, |text| {
            assert!(text.contains(from), "{from} in {text}");
            text.replacen(from, to, 1)
        })
    })
}

#[test]
fn what_a_manifest_says_is_checked() -> Result<()> {
    let place = saved("manifest")?;
    for (from, to, why) in [
        (
            "\"form\": 2",
            "\"form\": 3",
            "save the program with this one",
        ),
        ("\"form\": 2", "\"form\": -1", "no saved program"),
        ("\"input\": 0", "\"input\": 9", "nothing that is given"),
        ("\"weight\"", "\"\"", "no name"),
        ("\"weight\"", "\"wait\"", "weights.safetensors"),
        ("(2, 3)", "(2, 4)", "of another look"),
        ("(2, 3)", "(9999999999, 9999999999)", "2^59"),
        ("f32, CPU", "f64, CPU", "of another look"),
        ("\"root\": 0", "\"root\": 77", "not given out"),
        ("\"hidden\": 0", "\"hidden\": 12", "not there"),
        ("\"bytes\": ", "\"bytes\": 1", ""),
        (
            "\"asserts\": 0",
            "\"asserts\": 18446744073709551615",
            "roots",
        ),
        ("\"random\": [", "\"other\": [", "no saved program"),
    ] {
        let told = edited(&place, from, to);
        assert!(told.contains(why), "{to}: {told}");
    }
    let large = told(&place, "program.json", |path| {
        resealed(path, |text| {
            let (head, rest) = text.split_once("\"allocations\"").expect("it has some");
            let rest = rest.replacen("\"bytes\": ", "\"bytes\": 18446744073709", 1);
            format!("{head}\"allocations\"{rest}")
        })
    });
    assert!(large.contains("than any machine has"), "{large}");
    Ok(())
}

/// The folder with another text, and a manifest that has its length and digest.
fn with_text(place: &Place, change: impl FnOnce(String) -> String) -> Result<()> {
    let path = place.path().join("program.txt");
    let old = fs::read_to_string(&path).expect("saved");
    let new = change(old.clone());
    assert_ne!(old, new);
    fs::write(&path, &new).expect("ours");
    let scratch = Place::new("scratch");
    let sum = |text: &str| {
        let folder = monoglot::compiler::device::NewFolder::beside(scratch.path(), "x", |_| true)?;
        let sum = folder.write("x", |put| put(text.as_bytes()))?;
        Ok::<_, Error>((sum.bytes, format!("{:032x}", sum.digest)))
    };
    let (before, digest) = sum(&old)?;
    let (after, other) = sum(&new)?;
    resealed(&place.path().join("program.json"), |text| {
        let text = text.replace(&digest, &other);
        text.replace(
            &format!("\"bytes\": {before},"),
            &format!("\"bytes\": {after},"),
        )
    });
    Ok(())
}

#[test]
fn a_text_that_breaks_its_spec_is_not_compiled() -> Result<()> {
    for (from, to, why) in [
        ("LINEAR {", "SINK {", "program.txt"),
        (
            "PARAM[1, f32, CPU] (3, 4)",
            "PARAM[1, f32, CPU] (1, 1)",
            "program.txt",
        ),
        ("outs=[0]", "outs=[9]", "argument 9"),
        ("outs=[0]", "outs=[]", "does not say"),
        ("STORE", "LOAD", "program.txt"),
        ("RANGE[0, LOOP] 2", "RANGE[0, LOOP] 200", "program.txt"),
    ] {
        let place = saved("spec")?;
        let mut found = true;
        with_text(&place, |text| {
            found = text.contains(from);
            match found {
                true => text.replacen(from, to, 1),
                false => format!("{text}// "),
            }
        })?;
        assert!(found, "{from} is in the text");
        let error = error(&place);
        assert!(error.to_string().contains(why), "{from}: {error}");
        assert!(error.to_string().contains("program.txt"), "{from}: {error}");
    }
    Ok(())
}

#[test]
fn a_folder_that_is_none_is_told() {
    let place = Place::new("none");
    assert!(error(&place).to_string().contains("no such folder"));
    fs::create_dir(place.path()).expect("made");
    assert!(error(&place).to_string().contains("program.json"));
}

#[test]
fn a_save_that_fails_leaves_the_one_before() -> Result<()> {
    let place = saved("before")?;
    let step = jit(|x: Tensor| x)?;
    let program = step.program(Tensor::zeros([1]))?;
    let inside = place.path().join("program.json").join("deeper");
    assert!(program.save(inside).is_err());
    let missing = program.save(place.path().join("a/b")).unwrap_err();
    assert!(
        missing.to_string().contains("there is no folder"),
        "{missing}"
    );
    assert!(program.save("").unwrap_err().to_string().contains("\"\""));
    let loaded = Program::load(place.path())?;
    assert_eq!(loaded.inputs()[0].name(), "x");
    #[cfg(unix)]
    {
        let link = Place::new("before-link");
        std::os::unix::fs::symlink(place.path(), link.path()).expect("made");
        program.save(link.path())?;
        assert!(link.path().is_symlink());
        fs::remove_file(link.path()).expect("ours");
    }
    program.save(place.path())?;
    assert_eq!(Program::load(place.path())?.inputs()[0].name(), "input0");
    Ok(())
}
