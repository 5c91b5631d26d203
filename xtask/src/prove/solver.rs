//! One z3 process, spoken to in SMT-LIB. Flows in: questions; flows out: answers, or that there was
//! none in time. Always: a process that stops answering is started anew.

use std::io::{BufRead, BufReader, Result, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) enum Answer {
    /// The two sides never differ.
    Unsat,
    /// They do, here.
    Sat(String),
    /// The solver gave up.
    Unknown,
}

pub(crate) struct Solver {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    timeout: u32,
}

impl Solver {
    /// # Errors
    /// Where there is no `z3`.
    pub(crate) fn start(timeout: u32) -> Result<Solver> {
        let mut child = Command::new("z3")
            .arg("-in")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| std::io::Error::other("no pipes"))?;
        Ok(Solver {
            child,
            input,
            output: BufReader::new(output),
            timeout,
        })
    }

    /// Whether declarations and assertions have a model.
    pub(crate) fn ask(&mut self, query: &str) -> Answer {
        match self.try_ask(query) {
            Ok(answer) => answer,
            Err(e) => {
                eprintln!("z3: {e}");
                if let Ok(new) = Solver::start(self.timeout) {
                    *self = new;
                }
                Answer::Unknown
            }
        }
    }

    fn try_ask(&mut self, query: &str) -> Result<Answer> {
        write!(
            self.input,
            "(reset)\n(set-option :timeout {})\n{query}\n(check-sat)\n",
            self.timeout
        )?;
        self.input.flush()?;
        Ok(match self.line()?.as_str() {
            "unsat" => Answer::Unsat,
            "sat" => {
                // Variables are declared, everything else is defined by them.
                let names = query
                    .lines()
                    .filter_map(|l| l.strip_prefix("(declare-const ")?.split(' ').next());
                let names: Vec<&str> = names.collect();
                writeln!(
                    self.input,
                    "(get-value ({}))\n(echo \"end\")",
                    names.join(" ")
                )?;
                self.input.flush()?;
                let mut model = String::new();
                loop {
                    match self.line()?.as_str() {
                        "end" => break,
                        l => model.push_str(l),
                    }
                }
                Answer::Sat(model)
            }
            "unknown" | "timeout" => Answer::Unknown,
            other => return Err(std::io::Error::other(format!("{other}\n{query}"))),
        })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err(std::io::Error::other("ended"));
        }
        Ok(line.trim().to_string())
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
