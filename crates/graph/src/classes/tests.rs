//! Every class is registered once, has a summary, and has a README.

use super::*;
use std::path::Path;

#[test]
fn every_class_has_a_summary_and_a_readme_that_names_its_parameters() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/classes");
    let classes = Classes::new();
    assert!(classes.all().count() >= 8);
    for class in classes.all() {
        assert!(!class.summary.is_empty() && class.name == class.name.to_lowercase());
        let readme = folder.join(class.name).join("README.md");
        let text = std::fs::read_to_string(&readme)
            .unwrap_or_else(|error| panic!("{}: {error}", readme.display()));
        for parameter in class.parameters {
            let quoted = format!("`{}`", parameter.name);
            assert!(text.contains(&quoted), "{}: no {quoted}", readme.display());
        }
    }
}
