//! `parsimax report` and `parsimax reproduce inflection` as a user meets them.

mod common;

use common::{Scratch, fails, run, succeeds};
use parsimax_data::demo::demo;
use parsimax_data::inflection::Example;
use parsimax_models::inflection::{EpochRecord, Observer, Progress, Settings, Trainer};
use std::fs;

struct Silent;

impl Observer for Silent {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

fn examples(count: usize) -> [Vec<Example>; 2] {
    let demo = demo();
    let unseen = demo.unseen.into_iter().map(|u| u.example);
    let of = |example: &Example| example.language == "suvali";
    [demo.train.into_iter().filter(of).take(count).collect(), unseen.filter(of).take(count / 2).collect()]
}

#[test]
fn a_run_becomes_a_page() {
    let scratch = Scratch::new("report");
    let (folder, path) = (scratch.path("run"), scratch.path("report.html"));
    let [train, validation] = examples(200);
    let settings = Settings { size: 16, epochs: 3, batch: 8, rate: 1e-2, ..Settings::default() };
    let mut trainer = Trainer::new(folder.as_ref(), settings, &train, &validation).unwrap();
    trainer.run(&mut Silent).unwrap();

    assert_eq!(succeeds(&["report", &folder, "-o", &path, "--examples", "3"], ""), "");
    let html = fs::read_to_string(&path).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
    for expected in ["suvali", "of 100 validation words right", "entmax15 in attention", " of 3, with "] {
        assert!(html.contains(expected), "{expected}");
    }
    let section = |id: &str| {
        let rest = html.split(&format!("<section id=\"{id}\">")).nth(1).unwrap_or_default();
        rest.split("</section>").next().unwrap_or_default().to_owned()
    };
    for id in ["attention", "hypotheses", "forced"] {
        assert_eq!(section(id).matches("<article>").count(), 3, "{id}");
    }
    assert!(section("errors").contains("of 100 words are wrong"));
    // The same run gives the same page.
    assert!(succeeds(&["report", &folder, "-o", "-", "--examples", "3"], "") == html);
    assert!(!succeeds(&["report", &folder, "-o", "-", "--words", "5"], "").contains("of 100 validation words"));
}

#[test]
fn what_is_no_run_is_one_line_and_no_page() {
    let scratch = Scratch::new("report-mistakes");
    let path = scratch.path("report.html");
    let missing = scratch.path("nowhere");
    assert!(fails(&["report", &missing, "-o", &path], "").contains("nowhere: no run"));
    let folder = scratch.path("broken");
    fs::create_dir(&folder).unwrap();
    fs::write(format!("{folder}/best.safetensors"), b"something else entirely").unwrap();
    assert!(fails(&["report", &folder, "-o", &path], "").contains("best.safetensors"));
    assert!(fails(&["report", &folder], "").contains("--output"));
    assert!(fails(&["report", "-o", &path], "").contains("RUN"));
    assert_eq!(scratch.names(), ["broken"]);
}

/// Files of the shared task, made of the demo's words.
fn shared_task(scratch: &Scratch) -> String {
    let folder = scratch.path("data");
    fs::create_dir(&folder).unwrap();
    let [train, unseen] = examples(60);
    let lines = |examples: &[Example]| -> String {
        let line = |e: &Example| format!("{}\t{}\t{}\n", e.lemma, e.form.as_deref().unwrap_or(""), e.tags.join(";"));
        examples.iter().map(line).collect()
    };
    for (split, examples) in [("train-medium", &train[..]), ("dev", &unseen[..10]), ("test", &unseen[10..])] {
        scratch.file(&format!("data/suvali-{split}"), lines(examples).as_bytes());
    }
    folder
}

#[test]
fn the_table_is_written_once_and_taken_up_again() {
    let scratch = Scratch::new("reproduce-inflection");
    let (data, out) = (shared_task(&scratch), scratch.path("out"));
    let sizes = ["--size", "8", "--epochs", "1", "--batch", "16", "--threads", "2"];
    let study = |more: &[&str]| {
        let args = [&["reproduce", "inflection", "--data", &data, "--out", &out][..], &sizes, more].concat();
        let output = run(&args, b"");
        let [text, log] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{log}");
        (text, log)
    };
    let (text, log) = study(&["--seeds", "2"]);
    assert_eq!(log.lines().count(), 18, "{log}");
    assert!(text.contains("| 2 | 1.5 | ") && text.contains("| 85.03 | 86.61 |"), "{text}");
    assert_eq!(text, fs::read_to_string(format!("{out}/inflection.md")).unwrap());
    let json: serde_json::Value = serde_json::from_slice(&fs::read(format!("{out}/inflection.json")).unwrap()).unwrap();
    assert_eq!((json["rows"].as_array().unwrap().len(), json["seeds"].as_u64()), (9, Some(2)));
    assert_eq!(json["rows"][4]["runs"][1]["seed"], 2);

    // What is finished is not run again, what is missing is, and comes out the same.
    assert_eq!(study(&["--seeds", "2"]), (text.clone(), String::new()));
    let name = "output-sparsemax-attention-entmax15";
    fs::remove_dir_all(format!("{out}/runs/{name}-seed-2")).unwrap();
    fs::remove_file(format!("{out}/runs/{name}-ensemble-of-2.json")).unwrap();
    let (again, log) = study(&["--seeds", "2"]);
    assert!(log.lines().count() == 1 && log.contains(name), "{log}");
    assert_eq!(again, text);
    // Seeds can be added; anything else is another study.
    assert_eq!(study(&["--seeds", "3"]).1.lines().count(), 9);
    let other = ["reproduce", "inflection", "--data", &data, "--out", &out, "--size", "10", "--epochs", "1"];
    assert!(fails(&other, "").contains("another plan"));
    assert!(fails(&[&other[..], &["--seeds", "0"]].concat(), "").contains("--seeds must be at least 1"));
}
