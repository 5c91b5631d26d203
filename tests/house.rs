//! The house as it is meant to stand: rooms import only downwards, every file says what it is, the core
//! stays small, the README names things that exist. Flows in: this repository's files; flows out:
//! a list of everything that is wrong, or nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each room may import of ours, from DESIGN's table; the façade and what stands on it may import all.
const LADDER: &[(&str, &[&str])] = &[
    ("uop", &[]),
    ("schedule", &["uop"]),
    ("codegen", &["uop"]),
    ("native", &["uop"]),
    ("device", &["uop", "native"]),
    (
        "engine",
        &["uop", "schedule", "codegen", "native", "device"],
    ),
    ("tensor", &["uop", "engine"]),
    ("nn", &["tensor"]),
    ("models", &["tensor", "nn"]),
    ("oracle", &["uop", "codegen"]),
    ("roofline", &[]),
];

/// The most lines of code of a part of the house, a path below `crates`: its smallness is part of its
/// value. A file counts for the longest path that it lies under.
const MOST_LINES: &[(&str, usize)] = &[
    ("uop/src", 12_910),
    ("schedule/src", 5_790),
    ("codegen/src", 16_640),
    ("codegen/src/render", 2_500),
    ("native/src", 11_120),
    ("engine/src", 4_160),
    ("tensor/src", 10_540),
    ("device/src", 5_300),
    ("device/src/interp", 2_500),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Every file with this extension below a folder, build outputs apart, in order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut open = vec![folder.to_path_buf()];
    let mut out = Vec::new();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root())
        .unwrap_or(path)
        .display()
        .to_string()
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<String> = files(root(), "rs")
        .iter()
        .filter(|p| !read(p).starts_with("//! "))
        .map(|p| relative(p))
        .collect();
    assert!(
        silent.is_empty(),
        "files that do not start with `//! `: {silent:#?}"
    );
}

/// The comment at the head of a file, in one line.
fn head(text: &str) -> String {
    let lines = text.lines().map_while(|l| l.strip_prefix("//!"));
    let words = lines.flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn every_head_says_what_flows_in_and_out() {
    let folders = ["crates", "src", "xtask"].map(|f| files(&root().join(f), "rs"));
    let says = |path: &&PathBuf| {
        let head = head(&read(path));
        let out = ["flows out", "; out", "in and out"];
        head.contains("flows in") && out.iter().any(|o| head.contains(o))
    };
    let silent: Vec<String> = folders
        .iter()
        .flatten()
        .filter(|path| !says(path))
        .map(|path| relative(path))
        .collect();
    assert!(
        silent.is_empty(),
        "files whose head does not say `Flows in: …; flows out: …`: {silent:#?}"
    );
}

/// What follows the bracket that closes the one at which the text begins; strings and characters are
/// passed over.
fn after_brackets(text: &str) -> Option<&str> {
    let mut depth = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '"' => {
                while let Some((_, c)) = rest.next().filter(|(_, c)| *c != '"') {
                    if c == '\\' {
                        rest.next();
                    }
                }
            }
            // A bracket or a quote as a character; lifetimes and others have none in them.
            '\'' if text[at + 1..].starts_with(['(', ')', '[', ']', '{', '}', '"'])
                && text[at + 2..].starts_with('\'') =>
            {
                rest.next();
                rest.next();
            }
            _ => {}
        }
        if depth == 0 {
            return Some(&text[at + c.len_utf8()..]);
        }
    }
    None
}

/// Whether a statement is `let (a, b) = (x, y);`: several folded into one.
fn is_folded(statement: &str) -> bool {
    let tuple = |s: &&str| s.starts_with('(');
    let ends_there = || {
        let pattern = statement.strip_prefix("let ").filter(tuple)?;
        let mut rest = after_brackets(pattern)?;
        if let Some(types) = rest.strip_prefix(": ").filter(tuple) {
            rest = after_brackets(types)?;
        }
        let value = rest.strip_prefix(" =")?.trim_start();
        let end = after_brackets(Some(value).filter(tuple)?)?;
        Some(end.starts_with(';'))
    };
    ends_there() == Some(true)
}

/// Whether a statement chooses what it writes to inside of its target.
fn chooses_its_target(statement: &str) -> bool {
    let line = statement.lines().next().unwrap_or_default();
    let derefs = ["*if ", "*match ", "*(if ", "*(match "];
    let either = line.starts_with("if ") && line.contains("} else { &mut ");
    derefs.iter().any(|d| line.starts_with(d)) || either
}

#[test]
fn statements_are_not_folded() {
    let mut folded = Vec::new();
    for path in files(root(), "rs") {
        let text = read(&path);
        let mut at = 0;
        for (number, line) in text.lines().enumerate() {
            let statement = &text[at + line.len() - line.trim_start().len()..];
            if is_folded(statement) || chooses_its_target(statement) {
                folded.push(format!("{}:{}", relative(&path), number + 1));
            }
            at += line.len() + 1;
        }
    }
    assert!(
        folded.is_empty(),
        "more than one statement in a `let`, or a target chosen in the assignment: {folded:#?}"
    );
}

#[test]
fn folded_statements_are_found() {
    for folded in [
        "let (a, b) = (1, f(x));",
        "let (mut a, (b, c)) = (vec![')'], (\"(\", 2));",
        "let (a, b): (f64, Vec<u8>) =\n    (0.0, Vec::new());",
    ] {
        assert!(is_folded(folded), "{folded}");
    }
    for plain in [
        "let (a, b) = f(1, 2);",
        "let (a, b) = (x, y).into();",
        "let (Some(a), Some(b)) = (x, y) else {",
        "let a = (1, 2);",
    ] {
        assert!(!is_folded(plain), "{plain}");
    }
    assert!(chooses_its_target("*if a { &mut b } else { &mut c } = d;"));
    assert!(chooses_its_target(
        "if a { &mut b } else { &mut c }.push(d);"
    ));
    assert!(!chooses_its_target(
        "let b = if a { &mut b } else { &mut c };"
    ));
}

/// Our crates named among a manifest's ordinary and build dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut out = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if matches!(section, "[dependencies]" | "[build-dependencies]")
            && line.starts_with("monoglot")
        {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            out.push(
                name.strip_prefix("monoglot-")
                    .unwrap_or("monoglot")
                    .to_string(),
            );
        }
    }
    out
}

#[test]
fn rooms_import_only_downwards() {
    let mut wrong = Vec::new();
    for (room, allowed) in LADDER {
        let folder = root().join("crates").join(room);
        for import in dependencies(&read(&folder.join("Cargo.toml"))) {
            if !allowed.contains(&import.as_str()) {
                wrong.push(format!("{room} imports {import}"));
            }
        }
    }
    // Faces and tools stand on the façade and the rooms.
    for manifest in files(&root().join("crates"), "toml") {
        let room = manifest
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default()
            .to_string_lossy()
            .to_string();
        if manifest.ends_with("Cargo.toml") && !LADDER.iter().any(|(r, _)| *r == room) {
            let known = |d: &String| d == "monoglot" || LADDER.iter().any(|(r, _)| r == d);
            let others = dependencies(&read(&manifest))
                .into_iter()
                .filter(|d| !known(d));
            wrong.extend(
                others
                    .filter(|d| room != "fuzz" || d != "conformance")
                    .map(|d| format!("{room} imports {d}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Files that need each other, by room and folder, each with its reason. All others, in every folder of
/// every room, import one way.
const CIRCLES: &[(&str, &str, [&str; 2])] = &[
    // A node has a shape, and a dimension that is not known is a node.
    ("uop", "", ["node", "shape"]),
];

/// A path, name by name.
type Names = Vec<String>;

/// The paths that a tree of `use` names: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn paths(tree: &str, before: &[String], out: &mut Vec<Names>) {
    let (path, inner) = match tree.split_once('{') {
        Some((path, inner)) => (path, inner.trim_end().strip_suffix('}')),
        None => (tree.split(" as ").next().unwrap_or(tree), None),
    };
    let mut path: Vec<String> = path.split("::").map(|s| s.trim().to_string()).collect();
    path.retain(|s| !s.is_empty());
    path.splice(0..0, before.iter().cloned());
    let Some(inner) = inner else {
        out.push(path);
        return;
    };
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|p| !p.trim().is_empty()) {
        paths(part.trim(), &path, out);
    }
}

/// What a file imports, as paths from the root of its room; `module` is the file's own. The second list
/// is what it hands on by `pub use`, with the name under which it does.
fn imports(text: &str, module: &[String]) -> (Vec<Names>, Vec<(String, Names)>) {
    let code: Vec<&str> = text
        .lines()
        .filter(|l| !l.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let mut all = Vec::new();
    let mut handed = Vec::new();
    for statement in code.split(';') {
        let Some((before, tree)) = statement.rsplit_once("use ") else {
            continue;
        };
        let before = before.rsplit('\n').next().unwrap_or_default().trim();
        if !before.is_empty() && !before.starts_with("pub") {
            continue;
        }
        let first = all.len();
        paths(tree.trim(), &[], &mut all);
        if before.starts_with("pub") {
            let named = |p: &Vec<String>| (p.last().cloned().unwrap_or_default(), p.clone());
            handed.extend(all[first..].iter().map(named));
        }
    }
    // Paths in expressions.
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let path = &code[at..];
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let (path, rest) = path.split_at(end.unwrap_or(path.len()));
            if !rest.starts_with('{') {
                paths(path, &[], &mut all);
            }
        }
    }
    let rooted = |path: Vec<String>| -> Vec<String> {
        let mut base = match path[0].as_str() {
            "crate" => Vec::new(),
            _ => module.to_vec(),
        };
        for step in path {
            match step.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                _ => base.push(step),
            }
        }
        base
    };
    let handed = handed.into_iter().map(|(name, p)| (name, rooted(p)));
    let handed = handed.collect();
    (all.into_iter().map(rooted).collect(), handed)
}

#[test]
fn files_of_a_room_import_one_way() {
    let mut wrong = Vec::new();
    for manifest in files(&root().join("crates"), "toml") {
        let folder = manifest.parent().unwrap_or(root());
        let source = folder.join("src");
        if !manifest.ends_with("Cargo.toml") || !source.is_dir() {
            continue;
        }
        let room = folder.file_name().unwrap_or_default().to_string_lossy();
        let mut modules: BTreeMap<Vec<String>, String> = BTreeMap::new();
        for path in files(&source, "rs").iter().filter(|p| !only_tests(p)) {
            let place = path
                .strip_prefix(&source)
                .unwrap_or(path)
                .with_extension("");
            let mut module: Vec<String> = place
                .iter()
                .map(|s| s.to_string_lossy().to_string())
                .collect();
            module.pop_if(|last| ["lib", "mod", "main"].contains(&last.as_str()));
            let text = read(path);
            let tests = text.find("\n#[cfg(test)]\nmod tests {");
            modules.insert(module, text[..tests.unwrap_or(text.len())].to_string());
        }
        let read: BTreeMap<&Vec<String>, _> = modules
            .iter()
            .map(|(m, text)| (m, imports(text, m)))
            .collect();
        // The module that a path is in, through one that hands it on.
        let owner = |path: &[String]| -> Option<&Vec<String>> {
            let mut path = path.to_vec();
            for _ in 0..8 {
                let inside = (0..=path.len()).rev();
                let known = inside.filter_map(|n| read.get_key_value(&path[..n].to_vec()));
                let (module, (_, handed)) = known.into_iter().next()?;
                let next = path.get(module.len());
                let handed = handed.iter().find(|(name, _)| Some(name) == next);
                match handed {
                    Some((_, on)) if *on != path => path = on.clone(),
                    _ => return Some(module),
                }
            }
            None
        };
        // By folder: which of its files, or folders in it, imports which.
        let mut arrows: BTreeMap<(Vec<String>, String), Vec<String>> = BTreeMap::new();
        for (module, (all, _)) in &read {
            for other in all.iter().filter_map(|p| owner(p)) {
                let common = module.iter().zip(other).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (module.get(common), other.get(common)) {
                    let key = (module[..common].to_vec(), from.clone());
                    arrows.entry(key).or_default().push(to.clone());
                }
            }
        }
        // Files that are known to need each other count as one, so that a longer circle is found.
        for (_, folder, [one, other]) in CIRCLES.iter().filter(|c| c.0 == room) {
            let folder: Names = folder.split_terminator('/').map(str::to_string).collect();
            let mut of = |file: &str| arrows.remove(&(folder.clone(), file.to_string()));
            let [mut all, others] = [of(one), of(other)].map(Option::unwrap_or_default);
            if !all.iter().any(|to| to == other) || !others.iter().any(|to| to == one) {
                wrong.push(format!("{room}: {one} and {other} need no exception"));
            }
            all.extend(others);
            all.retain(|to| to != one && to != other);
            let importers = arrows.iter_mut().filter(|((f, _), _)| *f == folder);
            for to in importers.flat_map(|(_, to)| to).filter(|to| to == other) {
                *to = one.to_string();
            }
            arrows.insert((folder, one.to_string()), all);
        }
        for (folder, from) in arrows.keys() {
            let mut open = vec![from];
            let mut met: Vec<&String> = Vec::new();
            while let Some(file) = open.pop() {
                let next = arrows.get(&(folder.clone(), file.clone()));
                for to in next.into_iter().flatten() {
                    if !met.contains(&to) {
                        met.push(to);
                        open.push(to);
                    }
                }
            }
            if met.contains(&from) {
                wrong.push(format!(
                    "{room}: {folder:?} {from} imports itself through {met:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_a_use_names_is_read() {
    let text = "use crate::{a, b::{C, D as E}};\npub use x::Y;\nfn f() {\n    super::g::h()\n}\n";
    let module = ["m".to_string(), "n".to_string()];
    let (all, handed) = imports(text, &module);
    let all: Vec<String> = all.iter().map(|p| p.join("::")).collect();
    assert_eq!(all, ["a", "b::C", "b::D", "m::n::x::Y", "m::g::h"]);
    assert_eq!(handed[0].0, "Y");
}

/// The cells of the rows of a table of ARCHITECTURE.md, by the table's first heading.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let start = format!("| {heading} |");
    let rows = text.lines().skip_while(|l| !l.starts_with(&start)).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split(" | ");
        cells.map(|c| c.trim().replace('`', "")).collect()
    };
    rows.take_while(|l| l.starts_with('|')).map(cells).collect()
}

/// The names in a cell, in order.
fn names(cell: &str) -> Vec<String> {
    let mut names: Vec<String> = cell.split(", ").map(str::to_string).collect();
    names.sort();
    names
}

#[test]
fn the_map_names_every_room_and_what_it_imports() {
    let rows = table("room");
    let mut wrong = Vec::new();
    for row in &rows {
        let crates = root().join("crates").join(&row[0]);
        let folder = if crates.is_dir() {
            crates
        } else {
            root().join(&row[0])
        };
        let mut imports = dependencies(&read(&folder.join("Cargo.toml")));
        imports.sort();
        let said = match row[2].as_str() {
            "nothing" => Vec::new(),
            cell => names(&cell.replace("the façade", "monoglot")),
        };
        if said != imports {
            wrong.push(format!(
                "{}: the map says {said:?}, the manifest {imports:?}",
                row[0]
            ));
        }
    }
    for manifest in files(&root().join("crates"), "toml") {
        let room = manifest
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default();
        if manifest.ends_with("Cargo.toml") && !rows.iter().any(|r| *r[0] == *room) {
            wrong.push(format!("{} is not on the map", room.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_map_names_every_dependency_and_who_uses_it() {
    let mut used: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let manifests = files(root(), "toml");
    for manifest in manifests.iter().filter(|m| m.ends_with("Cargo.toml")) {
        let folder = manifest.parent().unwrap_or(root());
        let own = folder == root();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let user = if own { "examples" } else { &*name };
        let mut section = String::new();
        for line in read(manifest).lines() {
            if line.starts_with('[') {
                section = line.to_string();
            }
            let counts = section == "[dependencies]" || own && section == "[dev-dependencies]";
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let named = dependency.starts_with(|c: char| c.is_ascii_lowercase());
            if counts && named && !dependency.starts_with("monoglot") {
                let users = used.entry(dependency.to_string()).or_default();
                users.push(user.to_string());
            }
        }
    }
    used.values_mut().for_each(|users| users.sort());
    let said = table("crate").into_iter();
    let said: BTreeMap<String, Vec<String>> = said.map(|r| (r[0].clone(), names(&r[1]))).collect();
    assert_eq!(said, used);
}

/// Lines that are neither blank nor comment nor part of a test module.
fn code_lines(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && lines
                .peek()
                .is_some_and(|l| l.starts_with("mod ") && l.ends_with('{'))
        {
            // rustfmt closes a module of the file at the margin.
            for inner in lines.by_ref() {
                if inner == "}" {
                    break;
                }
            }
            continue;
        }
        let code = line.trim();
        count += (!code.is_empty() && !code.starts_with("//")) as usize;
    }
    count
}

/// Whether a file holds nothing but tests: it is declared under `#[cfg(test)]` by the file beside or above.
fn only_tests(path: &Path) -> bool {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_string();
    if stem == "tests" || path.components().any(|c| c.as_os_str() == "tests") {
        return true;
    }
    let dir = path.parent().unwrap_or(root());
    let beside = ["mod.rs", "lib.rs", "main.rs"].map(|f| dir.join(f));
    beside.iter().filter(|p| p.is_file()).any(|p| {
        let text = read(p);
        [
            format!("#[cfg(test)]\nmod {stem};"),
            format!("#[cfg(test)]\npub(crate) mod {stem};"),
        ]
        .iter()
        .any(|d| text.contains(d))
    })
}

#[test]
fn every_room_is_small() {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for path in files(&root().join("crates"), "rs") {
        let place = path.strip_prefix(root().join("crates")).unwrap_or(&path);
        let parts = MOST_LINES.iter().map(|(part, _)| *part);
        let part = parts
            .filter(|part| place.starts_with(part))
            .max_by_key(|part| part.len());
        if let Some(part) = part.filter(|_| !only_tests(&path)) {
            *sizes.entry(part).or_default() += code_lines(&read(&path));
        }
    }
    println!("lines of code: {sizes:?}");
    let over: Vec<String> = MOST_LINES
        .iter()
        .filter(|(part, most)| sizes.get(part).is_none_or(|lines| lines > most))
        .map(|(part, most)| format!("{part}: {:?} lines of at most {most}", sizes.get(part)))
        .collect();
    assert!(over.is_empty(), "{over:#?}");
}

#[test]
fn lines_are_counted_without_comments_and_tests() {
    let text = "//! A.\n\nfn f() {\n    // why\n    g()\n}\n#[cfg(test)]\nmod tests {\n    fn t() {}\n}\nfn h() {}\n";
    assert_eq!(code_lines(text), 4);
}

/// The commands in the README's shell blocks.
fn commands(readme: &str) -> Vec<String> {
    let mut inside = false;
    let mut out = Vec::new();
    for line in readme.lines() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            command if inside && !command.is_empty() && !command.starts_with('#') => {
                out.push(command.into())
            }
            _ => {}
        }
    }
    out
}

#[test]
fn the_readme_names_what_exists() {
    let readme = read(&root().join("README.md"));
    let commands = commands(&readme);
    assert!(!commands.is_empty(), "the README shows how to run and test");
    for command in &commands {
        let words: Vec<&str> = command
            .split_whitespace()
            .take_while(|w| *w != "--")
            .collect();
        for pair in words.windows(2) {
            let exists = match pair[0] {
                "--example" => root()
                    .join("examples")
                    .join(format!("{}.rs", pair[1]))
                    .is_file(),
                "--bin" => pair[1] == "monoglot",
                "-p" => {
                    // A room is named after its folder, a tool at the root is its folder's name.
                    let folder = match pair[1].strip_prefix("monoglot-") {
                        Some(room) => root().join("crates").join(room),
                        None => root().join(pair[1].trim_start_matches("monoglot")),
                    };
                    folder.join("Cargo.toml").is_file()
                }
                _ => true,
            };
            assert!(
                exists,
                "README: `{command}`: there is no {} {}",
                pair[0], pair[1]
            );
        }
    }
    let ci = root().join(".ci/run");
    if ci.is_file() {
        let ci = read(&ci);
        let test = commands
            .iter()
            .find(|c| c.starts_with("cargo test"))
            .expect("the README says how to test");
        assert!(ci.contains(test.as_str()), ".ci/run does not call `{test}`");
    }
    for link in readme
        .split("](")
        .skip(1)
        .filter_map(|l| l.split(')').next())
    {
        let path = link.split('#').next().unwrap_or_default();
        let ours = !path.is_empty() && !path.contains("://");
        assert!(
            !ours || root().join(path).exists(),
            "README links to {path}, which is not there"
        );
    }
}

#[test]
fn the_readme_shows_the_example() {
    let example = read(&root().join("examples/digits.rs"));
    let first: Vec<&str> = example.lines().take(20).collect();
    let readme = read(&root().join("README.md"));
    assert!(
        readme.contains(first.join("\n").trim_end()),
        "the README shows examples/digits.rs, lines 1 to 20"
    );
}
