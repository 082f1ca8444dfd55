//! Runs from the command line: taken up again, killed, interrupted, damaged; judged and asked for words.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Duration;

use common::{Scratch, fails, parsimax, run, succeeds};
use parsimax_data::demo::demo;
use parsimax_data::inflection::Example;

/// Some of the embedded words as files of the shared task.
fn data(scratch: &Scratch) -> String {
    let words = demo();
    let lines = |examples: &mut dyn Iterator<Item = &Example>, language: &str| -> String {
        let own = examples.filter(|e| e.language == language);
        let line = |e: &Example| format!("{}\t{}\t{}\n", e.lemma, e.form.as_deref().unwrap_or(""), e.tags.join(";"));
        own.map(line).collect()
    };
    for language in ["english", "suvali"] {
        let train = lines(&mut words.train.iter().step_by(18), language);
        let unseen = lines(&mut words.unseen.iter().map(|u| &u.example).step_by(6), language);
        scratch.file(&format!("{language}-train-low"), train.as_bytes());
        scratch.file(&format!("{language}-dev"), unseen.as_bytes());
        scratch.file(&format!("{language}-test"), unseen.as_bytes());
    }
    scratch.path("")
}

/// `train` of a tiny model; what `more` says counts.
fn train<'a>(data: &'a str, out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = [
        ["--data", data],
        ["--languages", "english,suvali"],
        ["--setting", "low"],
        ["--size", "8"],
        ["--batch", "8"],
        ["--epochs", "3"],
        ["--threads", "2"],
        ["--out", out],
    ];
    let usual = usual.into_iter().filter(|[flag, _]| !more.contains(flag)).flatten();
    ["train", "inflection"].into_iter().chain(usual).chain(more.iter().copied()).collect()
}

/// A run that must end well, with its progress on standard error.
fn trains(args: &[&str]) -> Output {
    let output = run(args, b"");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

const FILES: [&str; 4] = ["latest.safetensors", "best.safetensors", "train.tsv", "validation.tsv"];

fn assert_same_run(a: &str, b: &str) {
    assert_same_files(a, b, &FILES);
}

fn assert_same_files(a: &str, b: &str, names: &[&str]) {
    for name in names {
        let [a, b] = [a, b].map(|folder| fs::read(Path::new(folder).join(name)).expect(name));
        assert!(a == b, "{name} differs");
    }
}

#[test]
fn a_run_taken_up_again_is_the_run_that_never_stopped() {
    let scratch = Scratch::new("resume");
    let (data, whole, parts) = (data(&scratch), scratch.path("whole"), scratch.path("parts"));
    let said = trains(&train(&data, &whole, &[]));
    assert!(String::from_utf8_lossy(&said.stdout).starts_with("best epoch "));
    let log = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(log.lines().filter(|line| line.contains("% right")).count(), 3, "{log}");

    trains(&train(&data, &parts, &["--epochs", "1", "--threads", "1"]));
    let out = succeeds(&["train", "inflection", "--resume", &parts], "");
    assert!(out.contains("all 1 epochs are over"), "{out}");
    trains(&["train", "inflection", "--resume", &parts, "--epochs", "3"]);
    // The best model may be from before: it then says that one epoch was asked for.
    assert_same_files(&whole, &parts, &["latest.safetensors", "train.tsv", "validation.tsv"]);
    // The configurations differ in the folder and the threads alone, and start the same run again.
    let config = |folder: &str| fs::read_to_string(Path::new(folder).join("config.toml")).expect("a configuration");
    let same = |text: String| {
        text.lines().filter(|l| !l.starts_with("out") && !l.starts_with("threads")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(same(config(&whole)), same(config(&parts)));
    let again = scratch.path("again");
    trains(&["train", "inflection", "--config", &format!("{whole}/config.toml"), "--out", &again]);
    assert_same_run(&whole, &again);
}

/// Starts `train`, whatever the run's state.
fn spawn(data: &str, out: &str, more: &[&str]) -> Child {
    let exists = Path::new(out).join("latest.safetensors").exists();
    let resume = ["train", "inflection", "--resume", out, "--save-seconds", "0"];
    let fresh = train(data, out, more);
    parsimax(if exists { &resume } else { &fresh }).spawn().expect("starts")
}

#[test]
fn a_run_survives_being_killed_at_any_moment() {
    let scratch = Scratch::new("kill");
    let (data, whole, killed) = (data(&scratch), scratch.path("whole"), scratch.path("killed"));
    // Saves after each batch: most moments are then in the middle of writing.
    let often = ["--epochs", "6", "--save-seconds", "0"];
    trains(&train(&data, &whole, &often));
    let mut random = fastrand::Rng::with_seed(20);
    let mut kills = 0;
    while kills < 20 {
        let mut child = spawn(&data, &killed, &often);
        std::thread::sleep(Duration::from_millis(random.u64(0..150)));
        let is_running = child.try_wait().expect("waits").is_none();
        child.kill().expect("kills");
        let output = child.wait_with_output().expect("ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(is_running || output.status.success(), "after {kills} kills: {errors}");
        if !is_running {
            // A fast machine has finished: the next round begins anew.
            assert_same_run(&whole, &killed);
            fs::remove_dir_all(&killed).expect("removes");
        }
        kills += usize::from(is_running);
    }
    let output = spawn(&data, &killed, &often).wait_with_output().expect("ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_same_run(&whole, &killed);
}

#[cfg(unix)]
#[test]
fn an_interrupt_saves_and_the_exit_code_tells() {
    let scratch = Scratch::new("interrupt");
    let (data, whole) = (data(&scratch), scratch.path("whole"));
    trains(&train(&data, &whole, &["--epochs", "40"]));
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let out = scratch.path(signal);
        let mut child = parsimax(&train(&data, &out, &["--epochs", "40"])).spawn().expect("starts");
        // After the first epoch, so that it is training for sure.
        while !Path::new(&out).join("best.safetensors").exists() {
            assert!(child.try_wait().expect("waits").is_none(), "ended on its own");
            std::thread::sleep(Duration::from_millis(2));
        }
        let kill = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
        let output = child.wait_with_output().expect("ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.starts_with("parsimax: stopped at epoch ") && last.contains("--resume"), "{errors}");
        trains(&["train", "inflection", "--resume", &out]);
        assert_same_run(&whole, &out);
    }
}

#[test]
fn bad_options_are_one_clear_line() {
    let scratch = Scratch::new("options");
    let data = data(&scratch);
    let out = scratch.path("run");
    let toml = |name: &str, text: &str| scratch.file(name, text.as_bytes());
    let unknown = toml("unknown.toml", "size = 8\nsise = 9\n");
    let typed = toml("typed.toml", "size = 'big'\n");
    let broken = toml("broken.toml", "size = 8\nbatch = [\n");
    let setting = toml("setting.toml", "setting = 'huge'\n");
    let with = |more: &[&str]| fails(&train(&data, &out, more), "");
    for (line, expected) in [
        (with(&["--config", &unknown]), "unknown.toml: line 2: unknown field `sise`"),
        (with(&["--config", &typed]), "typed.toml: line 1: invalid type: string \"big\""),
        (with(&["--config", &broken]), "broken.toml: line"),
        (with(&["--config", &setting]), "setting.toml: line 1: unknown variant `huge`"),
        (with(&["--config", "no-such.toml"]), "no-such.toml: No such file"),
        (with(&["--size", "7"]), "size must be even"),
        (with(&["--dropout", "1"]), "dropout must be in [0, 1)"),
        (with(&["--batch", "0"]), "batch must be at least 1"),
        (with(&["--rate", "-1"]), "rate must be above 0"),
        (with(&["--epochs", "0"]), "epochs must be at least 1"),
        (with(&["--attention", "sparsmax"]), "did you mean 'sparsemax'?"),
        (with(&["--attention", "softmax", "--attention-alpha", "2"]), "--attention-alpha does not apply to softmax"),
        (with(&["--output", "ev-softmax"]), "has no convex loss"),
        (with(&["--setting", "huge"]), "expected low, medium or high"),
        (with(&["--languages", "english,english"]), "names 'english' twice"),
        (with(&["--languages", "klingon"]), "no train-low data for 'klingon'; there are 2 languages: english, suvali"),
        (with(&["--setting", "high"]), "no file named <language>-train-high"),
        (with(&["--data", "/no/such"]), "/no/such: No such file"),
        (with(&["--out", "/proc/no/run"]), "/proc/no/run: No such file"),
        (with(&["--save-seconds", "-1"]), "--save-seconds must be at least 0"),
        (with(&["--resume", &out]), "--resume goes on with the run's own options"),
        (fails(&["train", "inflection", "--resume", &out], ""), "there is no run to go on with"),
        (fails(&["train", "inflection", "--data", &data, "--out", &out], ""), "--languages is missing"),
        (fails(&["train", "inflection", "--data", &data, "--languages", "english"], ""), "--out is missing"),
    ] {
        assert!(line.contains(expected), "{line} does not say: {expected}");
    }
    assert!(!Path::new(&out).join("latest.safetensors").exists());
}

#[test]
fn a_malformed_line_is_reported_with_its_place() {
    let scratch = Scratch::new("lines");
    let data = data(&scratch);
    scratch.file("english-dev", b"walk\twalked\tV;PST\nwalk walks V\n");
    let line = fails(&train(&data, &scratch.path("run"), &[]), "");
    assert!(line.contains("english-dev: line 2: expected lemma, form and tags"), "{line}");
    assert!(!Path::new(&scratch.path("run")).exists(), "nothing is left of a run that never began");
}

#[test]
fn a_folder_that_holds_a_run_is_not_overwritten_and_not_shared() {
    let scratch = Scratch::new("occupied");
    let (data, out) = (data(&scratch), scratch.path("run"));
    trains(&train(&data, &out, &["--epochs", "1"]));
    let before = fs::read(format!("{out}/latest.safetensors")).expect("reads");
    let line = fails(&train(&data, &out, &[]), "");
    assert!(line.contains("already holds a run") && line.contains("--resume"), "{line}");
    let lock = fs::File::open(format!("{out}/.lock")).expect("opens");
    lock.lock().expect("locks");
    let line = fails(&["train", "inflection", "--resume", &out, "--epochs", "2"], "");
    assert!(line.contains("another process is training this run"), "{line}");
    assert!(before == fs::read(format!("{out}/latest.safetensors")).expect("reads"));
}

#[test]
fn damaged_and_foreign_files_are_refused_by_every_command() {
    let scratch = Scratch::new("damaged");
    let (data, out) = (data(&scratch), scratch.path("run"));
    trains(&train(&data, &out, &["--epochs", "1"]));
    let commands: [&[&str]; 3] = [
        &["train", "inflection", "--resume", &out, "--epochs", "2"],
        &["eval", &out, "--data", &data],
        &["predict", &out, "--language", "english", "--lemma", "walk", "--tags", "V;PST"],
    ];
    // (file, what is done to it, which commands notice, what they say)
    type Damage<'a> = (&'a str, &'a dyn Fn(Vec<u8>) -> Vec<u8>, &'a [usize], &'a str);
    let half = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    let flipped = |mut bytes: Vec<u8>| {
        let last = bytes.len() - 9;
        bytes[last] ^= 4;
        bytes
    };
    let note = |bytes: Vec<u8>| {
        // A digit in the notes, which JSON alone would not miss.
        let at = bytes
            .windows(12)
            .position(|w| w == b"\\\"size\\\\\\\":8,")
            .or(bytes.windows(6).position(|w| w == b"size\\\\"));
        let mut bytes = bytes;
        let digit = at.map(|at| at + bytes[at..].iter().position(|b| *b == b'8').expect("a digit")).expect("the size");
        bytes[digit] = b'6';
        bytes
    };
    let foreign = |_: Vec<u8>| b"\x02\0\0\0\0\0\0\0{}".to_vec();
    let text = |_: Vec<u8>| b"no checkpoint at all".to_vec();
    let other_size = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace("size = 8", "size = 16").into_bytes();
    let other_key = |bytes: Vec<u8>| [&bytes[..], b"colour = 'red'\n"].concat();
    let tsv = |bytes: Vec<u8>| [&bytes[..], b"english\tone field too few\n"].concat();
    let word = |bytes: Vec<u8>| [&bytes[..], b"english\ta\tb\tV\n"].concat();
    let damages: [Damage<'_>; 11] = [
        ("latest.safetensors", &half, &[0, 1, 2], "not a whole checkpoint"),
        ("latest.safetensors", &flipped, &[0, 1, 2], "do not match their checksum"),
        ("latest.safetensors", &note, &[0, 1, 2], "do not match their checksum"),
        ("latest.safetensors", &foreign, &[0, 1, 2], "not a checkpoint of parsimax"),
        ("best.safetensors", &half, &[1, 2], "not a whole checkpoint"),
        ("best.safetensors", &text, &[1, 2], "not a whole checkpoint"),
        ("config.toml", &other_size, &[0], "says size = 16, but the run was trained with 8"),
        ("config.toml", &other_key, &[0], "unknown field `colour`"),
        ("train.tsv", &word, &[0], "no longer the examples"),
        ("validation.tsv", &tsv, &[0, 1, 2], "validation.tsv: line"),
        ("train.tsv", &|_| vec![0xff, b'\n'], &[0], "train.tsv: line 1: not UTF-8"),
    ];
    for (name, damage, notice, expected) in damages {
        let path = Path::new(&out).join(name);
        let good = fs::read(&path).expect("reads");
        fs::write(&path, damage(good.clone())).expect("writes");
        for which in notice {
            let line = fails(commands[*which], "");
            assert!(line.contains(expected) && line.contains(name), "{name}: {line}");
        }
        fs::write(&path, good).expect("writes");
    }
    trains(commands[0]);
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_leaves_the_checkpoint_before() {
    let scratch = Scratch::new("full");
    let (data, out) = (data(&scratch), scratch.path("run"));
    trains(&train(&data, &out, &["--epochs", "1"]));
    let before = fs::read(format!("{out}/latest.safetensors")).expect("reads");
    // Files of at most 8 blocks; the signal that would end the process is ignored, so that writing fails instead.
    let script = format!(
        "trap '' XFSZ; ulimit -f 8; exec '{}' train inflection --resume '{out}' --epochs 2 --save-seconds 0",
        env!("CARGO_BIN_EXE_parsimax")
    );
    let output = Command::new("sh").args(["-c", &script]).output().expect("runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.contains("safetensors: ") && last.contains("the checkpoint before is untouched"), "{errors}");
    assert!(before == fs::read(format!("{out}/latest.safetensors")).expect("reads"));
    trains(&["train", "inflection", "--resume", &out, "--epochs", "2"]);
}

/// The keys of a JSON object.
fn keys(text: &str) -> (serde_json::Value, BTreeSet<String>) {
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let keys = value.as_object().expect("an object").keys().cloned().collect();
    (value, keys)
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn runs_are_judged_alone_and_together() {
    let scratch = Scratch::new("eval");
    let (data, one, two) = (data(&scratch), scratch.path("one"), scratch.path("two"));
    trains(&train(&data, &one, &[]));
    trains(&train(&data, &two, &["--seed", "2"]));
    let judge = |runs: &[&str], more: &[&str]| {
        let args: Vec<&str> = ["eval"].iter().chain(runs).chain(&["--data", &data]).chain(more).copied().collect();
        String::from_utf8(trains(&args).stdout).expect("text")
    };
    let (alone, names) = keys(&judge(&[&one], &["--json"]));
    let expected = [
        "accuracy",
        "languages",
        "levenshtein",
        "one_hypothesis",
        "cover_certificate",
        "bound_certificate",
        "attention_nonzeros",
        "output_nonzeros",
        "words_per_second",
    ];
    assert_eq!(names, set(&expected));
    let languages = alone["languages"].as_object().expect("an object");
    assert_eq!(languages.keys().cloned().collect::<BTreeSet<_>>(), set(&["english", "suvali"]));
    let mean = languages.values().filter_map(|v| v.as_f64()).sum::<f64>() / 2.0;
    assert_eq!(alone["accuracy"].as_f64(), Some(mean));
    assert!(alone["output_nonzeros"].as_f64() >= Some(1.0) && alone["attention_nonzeros"].as_f64() >= Some(1.0));
    // The same run twice is the same model; another one makes a difference to the distance.
    let (twice, _) = keys(&judge(&[&one, &one], &["--json"]));
    let (both, _) = keys(&judge(&[&one, &two], &["--json", "--split", "test"]));
    assert_eq!((&twice["accuracy"], &twice["levenshtein"]), (&alone["accuracy"], &alone["levenshtein"]));
    assert_ne!((&both["levenshtein"], &both["output_nonzeros"]), (&alone["levenshtein"], &alone["output_nonzeros"]));
    let table = judge(&[&one, &two], &["--languages", "suvali", "--beam", "2"]);
    for line in ["2 runs, averaged", "accuracy, suvali", "certificate, bound", "words per second"] {
        assert!(table.contains(line), "{table}");
    }
    assert!(!table.contains("english"), "{table}");

    let line = |args: &[&str]| fails(args, "");
    let strange = scratch.path("strange");
    trains(&train(&data, &strange, &["--languages", "english", "--epochs", "1"]));
    assert!(line(&["eval", &one, &strange, "--data", &data]).contains("do not write the same characters"));
    assert!(line(&["eval", &one, &data, "--data", &data]).contains("not a run"));
    assert!(line(&["eval", &one, "--data", &data, "--split", "covered-test"]).contains("no forms"));
    assert!(line(&["eval", &one, "--data", &data, "--split", "none"]).contains("expected train-low"));
    assert!(line(&["eval", &one, "--data", &data, "--format", "csv"]).contains("--format does not apply"));
    assert!(line(&["eval", "no-such-run", "--data", &data]).contains("no-such-run: no such folder"));
    assert!(line(&["eval", "no-such-run", "--data", &data, "--split", "dev"]).contains("no such folder"));
}

#[test]
fn words_are_inflected_by_every_decoder() {
    let scratch = Scratch::new("predict");
    let (data, out) = (data(&scratch), scratch.path("run"));
    trains(&train(&data, &out, &["--epochs", "20", "--size", "16"]));
    let word = ["predict", &out, "--language", "english", "--lemma", "walk", "--tags", "V;PST"];
    let ask = |more: &[&str]| succeeds(&[&word[..], more].concat(), "");
    let (beam, names) = keys(&ask(&["--json"]));
    assert_eq!(names, set(&["language", "lemma", "tags", "hypotheses", "certificate"]));
    assert_eq!((&beam["lemma"], &beam["tags"]), (&"walk".into(), &"V;PST".into()));
    let certificate = beam["certificate"].as_object().expect("an object");
    assert_eq!(certificate.keys().cloned().collect::<BTreeSet<_>>(), set(&["bound", "cover"]));
    let probabilities: Vec<f64> =
        beam["hypotheses"].as_array().expect("a list").iter().filter_map(|h| h["probability"].as_f64()).collect();
    assert!(!probabilities.is_empty() && probabilities.is_sorted_by(|a, b| a >= b), "{beam}");
    assert!(probabilities.iter().sum::<f64>() <= 1.0 + 1e-6, "{beam}");

    let (exact, _) = keys(&ask(&["--json", "--decoder", "exact"]));
    let names: BTreeSet<String> = exact["certificate"].as_object().expect("an object").keys().cloned().collect();
    assert!(names.is_superset(&set(&["optimal", "complete", "open_mass", "expansions"])), "{exact}");
    let (gave_up, _) = keys(&ask(&["--json", "--decoder", "all", "--expansions", "1"]));
    assert_eq!(gave_up["certificate"]["optimal"], false);
    assert!(gave_up["certificate"]["open_mass"].as_f64() > Some(0.0), "{gave_up}");
    assert!(ask(&["--decoder", "all", "--expansions", "1"]).contains("gave up after 1 prefixes"));
    assert!(ask(&["--decoder", "greedy"]).lines().count() <= 3);
    let sample = |seed: &str| ask(&["--decoder", "sample", "--samples", "20", "--seed", seed]);
    assert_eq!(sample("3"), sample("3"));
    assert_ne!(sample("3"), sample("4"));

    // Lines give the same answers as single words, in their order.
    let lines = "walk\tV;PST\nsuvali\tkala\tN;ABL;PL\r\n\nwalk\tV;PST\n";
    let all = succeeds(&["predict", &out, "--language", "english", "--json"], lines);
    let answers: Vec<&str> = all.lines().collect();
    assert_eq!(answers.len(), 3);
    assert_eq!((answers[0], answers[0]), (answers[2], ask(&["--json"]).trim_end()));
    assert!(answers[1].contains("\"language\":\"suvali\""));
}

#[test]
fn what_a_model_has_never_seen_is_a_warning_and_nonsense_is_an_error() {
    let scratch = Scratch::new("unseen");
    let (data, out) = (data(&scratch), scratch.path("run"));
    trains(&train(&data, &out, &["--epochs", "1"]));
    let warn = |args: &[&str], input: &str| {
        let output = run(&[&["predict", out.as_str()], args].concat(), input.as_bytes());
        assert!(output.status.success() && !output.stdout.is_empty());
        String::from_utf8(output.stderr).expect("text")
    };
    let said = warn(&["--language", "klingon", "--lemma", "漢ß", "--tags", "V;FUTURE"], "");
    for what in ["language 'klingon'", "it knows english, suvali", "tag 'FUTURE'", "character '漢'", "character 'ß'"]
    {
        assert!(said.contains(what), "{said}");
    }
    let said = warn(&["--language", "english"], &"ßß\tV\n".repeat(15));
    assert_eq!(said.lines().count(), 11, "{said}");
    assert!(said.contains("5 words more"), "{said}");
    let line = |args: &[&str], input: &str| fails(&[&["predict", out.as_str()], args].concat(), input);
    for (got, expected) in [
        (line(&["--lemma", "walk", "--tags", "V"], ""), "--language is missing; the run knows english, suvali"),
        (line(&[], "walk\tV\n"), "standard input: line 1: no language"),
        (line(&["--language", "english"], "walk\tV\nwalk\n"), "standard input: line 2: expected lemma and tags"),
        (line(&["--language", "english", "--lemma", "", "--tags", "V"], ""), "the lemma is empty"),
        (line(&["--lemma", "walk"], ""), "--tags"),
        (line(&["--data", "x.arff"], ""), "do not apply to runs"),
        (line(&["--language", "english", "--beam", "0"], ""), "--beam must be at least 1"),
        (line(&["--decoder", "exact", "--beam", "3"], ""), "--beam applies to --decoder beam only"),
        (line(&["--decoder", "best"], ""), "invalid value 'best'"),
    ] {
        assert!(got.contains(expected), "{got} does not say: {expected}");
    }
    let early = scratch.path("early");
    fs::create_dir(&early).expect("a folder");
    fs::copy(format!("{out}/latest.safetensors"), format!("{early}/latest.safetensors")).expect("copies");
    let line = fails(&["predict", &early, "--lemma", "a", "--tags", "b"], "");
    assert!(line.contains("first epoch is not over"), "{line}");
}
