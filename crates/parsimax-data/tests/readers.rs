//! Laws of the readers and what they say of broken files.

use parsimax_data::{Error, Labels, Matrix, Nominal, Options, Targets, Task};
use parsimax_data::{parse_arff, parse_csv, parse_svmlight, parse_xml, read};

fn options(labels: usize) -> Options {
    Options { labels: Labels::Last(labels), ..Options::default() }
}

const HEAD: &str = "% remark\n@RELATION 'a b'\n\n@attribute x real\n@Attribute 'it\\'s' {low,'very high'}\n\
                    @attribute \"q\" {0,1}\n@attribute r {0,1}\n@data\n";

#[test]
fn names_are_unquoted_and_values_one_hot() {
    let data = parse_arff("f", &format!("{HEAD}1.5,'very high',1,0\n-2e-1, low ,0,1 % no\n"), &options(2));
    // Trailing text is a complaint, not a remark.
    assert_eq!(data.unwrap_err().line, Some(10));
    let data =
        parse_arff("f", &format!("{HEAD}1.5,'very high',1,0\n\n% remark\n-2e-1, low ,0,1\n"), &options(2)).unwrap();
    assert_eq!(data.feature_names, ["x", "it's=low", "it's=very high"]);
    assert_eq!(data.label_columns, ["q", "r"]);
    assert_eq!(data.features, Matrix::Dense { columns: 3, values: vec![1.5, 0.0, 1.0, -0.2, 1.0, 0.0] });
    let Targets::Sets { sets, .. } = data.targets else { panic!("sets") };
    assert_eq!(sets, [vec![0], vec![1]]);
}

#[test]
fn a_sparse_row_means_its_dense_one() {
    let mut random = fastrand::Rng::with_seed(11);
    let head = "@relation r\n@attribute a numeric\n@attribute n {u,v,w}\n@attribute b numeric\n\
                @attribute l {0,1}\n@attribute m {0,1}\n@data\n";
    let (mut dense, mut sparse) = (head.to_owned(), head.to_owned());
    for _ in 0..50 {
        let numbers = [0, 1].map(|_| if random.bool() { 0.0 } else { random.f64() - 0.5 });
        let (nominal, labels) = (random.usize(..3), [0, 1].map(|_| random.usize(..2)));
        let name = ["u", "v", "w"][nominal];
        dense += &format!("{},{name},{},{},{}\n", numbers[0], numbers[1], labels[0], labels[1]);
        let cells = [numbers[0].to_string(), name.into(), numbers[1].to_string()];
        let cells = cells.into_iter().chain(labels.map(|label| label.to_string())).enumerate();
        let present: Vec<String> = cells
            .filter(|(at, cell)| if *at == 1 { nominal > 0 } else { cell != "0" })
            .map(|(at, cell)| format!("{at} {cell}"))
            .collect();
        sparse += &format!("{{{}}}\n", present.join(", "));
    }
    let [dense, sparse] = [dense, sparse].map(|text| parse_arff("f", &text, &options(2)).unwrap());
    assert!(matches!(sparse.features, Matrix::Sparse { .. }));
    for row in 0..50 {
        assert_eq!(dense.features.row_dense(row), sparse.features.row_dense(row), "{row}");
    }
    assert_eq!(dense.targets, sparse.targets);
}

#[test]
fn nominal_numbers_are_the_numbers_they_spell() {
    let text = "@relation r\n@attribute place {10,2}\n@attribute c {a,b}\n@data\n2,b\n10,a\n";
    let numeric = Options { nominal: Nominal::Numeric, ..options(1) };
    let data = parse_arff("f", text, &numeric).unwrap();
    assert_eq!(data.features, Matrix::Dense { columns: 1, values: vec![2.0, 10.0] });
    // One label column is a class, in the order of its declaration.
    assert_eq!(data.targets, Targets::Classes { names: vec!["a".into(), "b".into()], classes: vec![1, 0] });
    let words = text.replace("{10,2}", "{ten,2}").replace("10,a", "ten,a");
    assert!(parse_arff("f", &words, &numeric).unwrap_err().what.contains("one-hot"));
}

#[test]
fn a_broken_arff_says_where_and_what() {
    let row = |row: &str| parse_arff("f.arff", &format!("{HEAD}1,low,0,1\n{row}\n"), &options(2)).unwrap_err();
    for (text, what) in [
        ("1,low,0", "expected 4 values, got 3"),
        ("1,low,0,1,1", "expected 4 values, got more"),
        ("one,low,0,1", "'x': 'one' is no number"),
        ("nan,low,0,1", "is no number"),
        ("?,low,0,1", "missing"),
        ("1,middle,0,1", "'middle' is not a declared value"),
        ("1,low,2,1", "'2' is not a declared value of 'q'"),
        ("1,'low,0,1", "never closed"),
        ("{0 1}", "a sparse row among dense ones"),
    ] {
        let error = row(text);
        assert_eq!(error.line, Some(10), "{text}");
        assert!(error.to_string().starts_with("f.arff: line 10: ") && error.what.contains(what), "{text}: {error}");
    }
    let sparse = |row: &str| parse_arff("f", &format!("{HEAD}{row}\n"), &options(2)).unwrap_err().what;
    for (text, what) in [
        ("{0 1, 9 1}", "attribute 9 does not exist"),
        ("{1 low, 0 1}", "indices must ascend"),
        ("{0 1", "expected ',' or '}'"),
        ("{x 1}", "no index"),
        ("{0}", "has no value"),
        ("{0 1} 2", "after the row's end"),
    ] {
        assert!(sparse(text).contains(what), "{text}: {}", sparse(text));
    }
    for (text, what) in [
        ("", "no @data"),
        ("@relation r\n@attribute x string\n@data\n", "of type string"),
        ("@relation r\n@attribute x\n@data\n", "has no type"),
        ("@relation r\n@attribute x {a b}\n@data\n", "separated by ','"),
        ("@relation r\n@attribute x real\n@attribute x real\n@data\n", "declared twice"),
        ("hello\n", "expected @relation"),
        ("@data\n", "before any @attribute"),
    ] {
        let error = parse_arff("f", text, &options(2)).unwrap_err();
        assert!(error.what.contains(what), "{text}: {error}");
    }
}

#[test]
fn labels_must_fit_the_file() {
    let text = format!("{HEAD}1,low,0,1\n");
    let with = |labels| parse_arff("f", &text, &Options { labels, ..Options::default() });
    assert!(with(Labels::Last(4)).unwrap_err().what.contains("leaves no feature"));
    assert!(with(Labels::Last(0)).unwrap_err().what.contains("at least 1"));
    assert!(with(Labels::Named(vec!["s".into()])).unwrap_err().what.contains("'s'"));
    assert_eq!(with(Labels::IfPresent(vec!["s".into()])).unwrap().targets, Targets::None);
    // A column that is neither 0 nor 1 is no label.
    let error = parse_arff("f", &text, &options(3)).unwrap_err();
    assert!(error.line == Some(9) && error.what.contains("must be 0 or 1, got 'low'"), "{error}");
}

#[test]
fn svmlight_reads_several_labels_none_and_remarks() {
    let data = parse_svmlight("f", "10,2 1:0.5 4:-1 # remark\n\n 2:1\n2\n", &Options::default()).unwrap();
    assert_eq!(data.features.columns(), 4);
    assert_eq!(data.features.row_dense(0), [0.5, 0.0, 0.0, -1.0]);
    let Targets::Sets { names, sets } = data.targets else { panic!("sets") };
    // Numbers are ordered as numbers.
    assert_eq!((names, sets), (vec!["2".into(), "10".into()], vec![vec![0, 1], vec![], vec![0]]));
    let classes = parse_svmlight("f", "+1 0:1\n-1 1:1\n", &Options::default()).unwrap();
    assert_eq!(classes.features.columns(), 2, "a zero index means that counting starts there");
    assert_eq!(classes.targets, Targets::Classes { names: vec!["-1".into(), "+1".into()], classes: vec![1, 0] });
}

#[test]
fn a_broken_svmlight_says_where_and_what() {
    let fail = |text: &str, options: &Options| parse_svmlight("f", text, options).unwrap_err();
    for (text, what) in
        [("1 2:1\n1 3\n", "index:value"), ("1 2:1\n1 3:x\n", "index:value"), ("1 2:1\n1 3:1 3:2\n", "ascend")]
    {
        let error = fail(text, &Options::default());
        assert!(error.line == Some(2) && error.what.contains(what), "{text}: {error}");
    }
    assert!(fail("# nothing\n", &Options::default()).what.contains("no rows"));
    let narrow = Options { columns: Some(2), ..Options::default() };
    assert!(fail("1 3:1\n", &narrow).what.contains("2 features are expected"));
    let known = Options { known: Some(vec!["1".into()]), ..Options::default() };
    assert!(fail("2 3:1\n", &known).what.contains("label '2' is unknown"));
    let classes = Options { task: Task::MultiClass, ..Options::default() };
    assert!(fail("1,2 3:1\n", &classes).what.contains("exactly one label"));
}

#[test]
fn csv_has_a_head_numbers_and_labels() {
    let data = parse_csv("f", "a,b,\"la, bel\",m\n1, 2,0,1\n3,4.5,1,1\n", &options(2)).unwrap();
    assert_eq!(data.features, Matrix::Dense { columns: 2, values: vec![1.0, 2.0, 3.0, 4.5] });
    assert_eq!(data.label_columns, ["la, bel", "m"]);
    let shares = Options { task: Task::Proportions, ..options(2) };
    let data = parse_csv("f", "a,l,m\n1,0.25,0.75\n", &shares).unwrap();
    assert_eq!(data.targets, Targets::Proportions { names: vec!["l".into(), "m".into()], shares: vec![0.25, 0.75] });
    let fail = |text: &str, options: &Options| parse_csv("f", text, options).unwrap_err();
    assert_eq!(fail("a,l,m\n1,0.5,0.75\n", &shares).line, Some(2));
    assert_eq!(fail("a,l,m\n1,0,1\n1,0\n", &options(2)).line, Some(3));
    assert!(fail("a,l,m\n1,0,1\nx,0,1\n", &options(2)).to_string().contains("line 3: 'a': 'x' is no number"));
    assert!(fail("a,l,m\n", &options(2)).what.contains("no rows"));
}

#[test]
fn label_lists_may_nest_and_must_name() {
    let list = "<?xml version=\"1.0\"?>\n<labels xmlns=\"http://m\"><label name=\"a &amp; b\"><label name=\"c\"/></label></labels>";
    assert_eq!(parse_xml("f", list).unwrap(), ["a & b", "c"]);
    assert_eq!(parse_xml("f", "<labels>\n<label/></labels>").unwrap_err().line, Some(2));
    assert!(parse_xml("f", "<labels/>").unwrap_err().what.contains("no label"));
    assert!(parse_xml("f", "<labels>").unwrap_err().what.contains("broken XML"));
}

#[test]
fn files_are_told_by_name_and_by_their_first_bytes() {
    use std::io::Write;
    let folder = std::env::temp_dir().join(format!("parsimax-data-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = "a,l,m\n1,0,1\n";
    let mut zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    zip.write_all(text.as_bytes()).unwrap();
    let zipped = zip.finish().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&path, None, &options(2))
    };
    let plain = file("a.csv", text.as_bytes()).unwrap();
    assert_eq!(file("b.csv.gz", &zipped).unwrap(), plain);
    // The bytes count, not the name.
    assert_eq!(file("c.csv", &zipped).unwrap(), plain);
    assert!(file("d.csv.gz", &zipped[..zipped.len() - 9]).unwrap_err().what.contains("gzip"));
    assert!(file("e.xyz", b"").unwrap_err().what.contains("cannot tell the format"));
    assert_eq!(file("f.csv", b"a,l,m\n\xff,0,1\n").unwrap_err().line, Some(2));
    let missing: Error = read(&folder.join("missing.csv"), None, &options(2)).unwrap_err();
    assert!(missing.what.contains("No such file") && !missing.what.contains("os error"), "{missing}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// No bytes make a reader panic: broken lines are complaints.
#[test]
fn random_texts_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(5);
    let pieces =
        ["@data\n", "{", "}", ",", "0", "1", "'", "\\", "\"", " ", "\n", "low", ":", "é", "?", "1e999", "#", "-"];
    for _ in 0..2000 {
        let body: String = (0..random.usize(..30)).map(|_| pieces[random.usize(..pieces.len())]).collect();
        let _ = parse_arff("f", &format!("{HEAD}{body}"), &options(2));
        let _ = parse_arff("f", &body, &options(1));
        let _ = parse_svmlight("f", &body, &Options::default());
        let _ = parse_csv("f", &body, &options(1));
        let _ = parse_xml("f", &body);
    }
}
