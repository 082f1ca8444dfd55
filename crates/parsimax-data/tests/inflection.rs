//! The shared task's files, from folders and archives, good and bad.

use flate2::{Compression, write::GzEncoder};
use parsimax_data::inflection::{Setting, Split, from_tsv, languages, parse, read, to_tsv};
use std::fs;
use std::path::{Path, PathBuf};

const ENGLISH: &str = "draw\tdrawn\tV;V.PTCP;PST\nwalk\twalks\tV;3;SG;PRS\n";

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn archive(path: &Path, files: &[(&str, &str)]) {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, text.as_bytes()).expect("append");
    }
    fs::write(path, builder.into_inner().expect("tar").finish().expect("gz")).expect("write");
}

#[test]
fn folders_and_archives_give_the_same_examples() {
    let dir = tempfile::tempdir().expect("a folder");
    let plain = dir.path().join("plain/task1/all");
    fs::create_dir_all(&plain).expect("folders");
    fs::write(plain.join("english-train-medium"), ENGLISH).expect("write");
    fs::write(plain.join("german-train-medium"), "Hahn\tHahnes\tN;GEN;SG\n").expect("write");
    let packed = dir.path().join("packed");
    fs::create_dir(&packed).expect("a folder");
    archive(&packed.join("a.tar.gz"), &[("task1/all/german-train-medium", "Hahn\tHahnes\tN;GEN;SG\n")]);
    archive(&packed.join("b.tar.gz"), &[("task1/surprise/english-train-medium", ENGLISH)]);

    let split = Split::Train(Setting::Medium);
    let wanted = names(&["german", "english"]);
    let examples = read(&dir.path().join("plain"), &wanted, split).expect("reads");
    assert_eq!(examples, read(&packed, &wanted, split).expect("reads"));
    assert_eq!(examples.len(), 3);
    assert_eq!((examples[0].language.as_str(), examples[0].lemma.as_str()), ("german", "Hahn"));
    assert_eq!(examples[1].tags, names(&["V", "V.PTCP", "PST"]));
    assert_eq!(examples[1].form.as_deref(), Some("drawn"));
    assert_eq!(languages(&packed, split).expect("reads"), names(&["english", "german"]));
    let one = read(&packed.join("b.tar.gz"), &names(&["english"]), split).expect("reads");
    assert_eq!(one, examples[1..]);
}

#[test]
fn test_and_covered_test_are_two_files() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("x-covered-test"), "draw\tV;PST\n").expect("write");
    fs::write(dir.path().join("x-test"), "draw\tdrew\tV;PST\n").expect("write");
    assert_eq!(languages(dir.path(), Split::Test).expect("reads"), names(&["x"]));
    let covered = read(dir.path(), &names(&["x"]), Split::CoveredTest).expect("reads");
    assert_eq!((covered[0].form.as_deref(), covered[0].tags.len()), (None, 2));
}

#[test]
fn a_bad_line_is_reported_with_its_place() {
    let of = |text: &str, split| parse("x", "x-dev", text.as_bytes(), split).expect_err("bad").to_string();
    assert_eq!(
        of("a\tb\tV\n\na\tb\n", Split::Dev),
        "x-dev: line 3: expected lemma, form and tags, separated by tabs; got 2 fields"
    );
    assert_eq!(of("a\t\tV\n", Split::Dev), "x-dev: line 1: the form is empty");
    assert_eq!(
        of("a\n", Split::CoveredTest),
        "x-dev: line 1: expected lemma and tags, separated by a tab; got 1 fields"
    );
    let error = parse("x", "x-dev", b"a\tb\tV\n\xff\tb\tV\n", Split::Dev).expect_err("bad").to_string();
    assert!(error.starts_with("x-dev: line 2: not UTF-8"), "{error}");
    assert_eq!(parse("x", "x-dev", b"a\tb\tV\r\n", Split::Dev).expect("good")[0].tags, names(&["V"]));
}

#[test]
fn examples_of_several_languages_survive_in_one_file() {
    let mut examples = parse("english", "x", ENGLISH.as_bytes(), Split::Dev).expect("good");
    examples.extend(parse("old-irish", "x", "a b\té f\tN\n".as_bytes(), Split::Dev).expect("good"));
    let text = to_tsv(&examples);
    assert_eq!(text.lines().next(), Some("english\tdraw\tdrawn\tV;V.PTCP;PST"));
    assert_eq!(from_tsv("kept.tsv", text.as_bytes()).expect("reads"), examples);
    examples.iter_mut().for_each(|example| example.form = None);
    assert_eq!(from_tsv("kept.tsv", to_tsv(&examples).as_bytes()).expect("reads"), examples);
    let error = from_tsv("kept.tsv", b"english\tdraw\tdrew\tV\ndraw\n").expect_err("bad").to_string();
    assert!(error.starts_with("kept.tsv: line 2: expected language, lemma, form and tags"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let of = |path: &Path| read(path, &names(&["english"]), Split::Dev).expect_err("missing").to_string();
    assert!(of(dir.path()).contains("no file named <language>-dev"), "{}", of(dir.path()));
    fs::write(dir.path().join("german-dev"), "a\tb\tV\n").expect("write");
    assert!(of(dir.path()).contains("no dev data for 'english'; there are 1 languages: german"));
    assert!(of(Path::new("/no/such/folder")).contains("/no/such/folder"));
    fs::write(dir.path().join("broken.tar.gz"), b"this is no archive").expect("write");
    assert!(of(dir.path()).contains("broken.tar.gz"));
}

#[test]
fn a_truncated_archive_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("x.tar.gz");
    let long = ENGLISH.repeat(5000);
    archive(&path, &[("english-dev", &long)]);
    let bytes = fs::read(&path).expect("read");
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("write");
    let error = read(&path, &names(&["english"]), Split::Dev).expect_err("truncated").to_string();
    assert!(error.contains("x.tar.gz"), "{error}");
}

#[test]
fn splits_are_spelled_as_they_are_read() {
    for name in ["train-low", "train-medium", "train-high", "dev", "test", "covered-test"] {
        assert_eq!(name.parse::<Split>().expect("a split").to_string(), name);
    }
    assert!("train".parse::<Split>().is_err());
}

/// The folder of real data sets, if it is there.
fn real_data() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let root = std::env::var_os("PARSIMAX_DATA").map_or(beside, PathBuf::from).join("conll2018");
    if root.is_dir() {
        return Some(root);
    }
    eprintln!("skipped: no conll2018 data; set PARSIMAX_DATA to the folder that holds it");
    None
}

#[test]
fn the_real_data_reads_in_full() {
    let Some(root) = real_data() else { return };
    // The counts that the data's own description states.
    for (split, files, rows) in [
        (Split::Train(Setting::Low), 103, 10_261),
        (Split::Train(Setting::Medium), 102, 95_323),
        (Split::Train(Setting::High), 86, 735_610),
        (Split::Dev, 103, 65_250),
    ] {
        let languages = languages(&root, split).expect("reads");
        assert_eq!(languages.len(), files, "{split}");
        assert_eq!(read(&root, &languages, split).expect("reads").len(), rows, "{split}");
    }
}
