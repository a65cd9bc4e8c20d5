//! XML Schemas, by what they report about documents; those that are refused; and what a minor version may change.

use super::*;
use contract::{NewVersion, SchemaType, SchemaVersion};
use serde_json::json;
use std::time::{Duration, Instant};

const ORDER: &str = r#"
    <xs:element name="order">
        <xs:complexType>
            <xs:sequence>
                <xs:element name="sku" type="xs:string" maxOccurs="unbounded"/>
                <xs:element name="total" type="xs:decimal" minOccurs="0"/>
            </xs:sequence>
            <xs:attribute name="id" type="xs:int" use="required"/>
            <xs:attribute name="state" type="state"/>
        </xs:complexType>
    </xs:element>
    <xs:simpleType name="state"><xs:restriction base="xs:string">
        <xs:enumeration value="open"/><xs:enumeration value="paid"/>
    </xs:restriction></xs:simpleType>
"#;

fn schema(body: &str) -> String {
    format!(r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">{body}</xs:schema>"#)
}

fn compile(body: &str) -> Result<XsdSchema> {
    XsdSchema::compile("/schema", &schema(body))
}

fn reported(schema: &XsdSchema, document: &str) -> String {
    let reported = schema.check(&json!({"xml": document})).err().unwrap_or_default();
    assert!(reported.iter().all(|it| it.pointer == "/data/xml"));
    reported.into_iter().map(|it| it.detail).collect::<Vec<_>>().join("; ")
}

#[test]
fn every_failure_of_a_document_has_a_path_and_a_text() {
    let schema = compile(ORDER).unwrap();
    for (document, expected) in [
        (r#"<order id="1"><sku>a</sku></order>"#, ""),
        (r#"<?xml version="1.0"?><order id="1" state="paid"><sku>a</sku><sku>b</sku><total>1.50</total></order>"#, ""),
        (r#"<order id="1"/>"#, "an element's content is not what the schema allows, at /order"),
        (r#"<order><sku>a</sku></order>"#, "an attribute is missing, or is not one the schema knows, at /order"),
        (r#"<order id="secret"><sku>a</sku></order>"#, "a value is not what the schema allows, at /order"),
        (r#"<order id="1" state="secret"><sku/></order>"#, "a value is not what the schema allows, at /order"),
        (r#"<order id="1"><sku>a</sku><total>secret</total></order>"#, "at /order/total"),
        (r#"<order id="1"><sku>a</sku><other/></order>"#, "an element's content is not what the schema allows"),
        (r#"<other/>"#, "an element is not one the schema knows"),
        ("secret", "is not well-formed XML"),
        ("", "is not well-formed XML"),
        (r#"<order id="1"><sku>a</order>"#, "is not well-formed XML"),
    ] {
        let reported = reported(&schema, document);
        assert!(reported.contains(expected) && reported.is_empty() == expected.is_empty(), "{document}: {reported}");
        assert!(!reported.contains("secret"), "{reported}");
    }
    for data in [json!({}), json!({"xml": 5}), json!({"xml": "<order/>", "more": 1}), json!({"text": "<order/>"})] {
        assert_eq!(schema.check(&data).unwrap_err()[0].pointer, "/data", "{data}");
    }
}

#[test]
fn entities_and_document_types_are_refused_and_nothing_is_read() {
    let schema = compile(r#"<xs:element name="a" type="xs:string"/>"#).unwrap();
    let lol: String = (1..10).map(|n| format!(r#"<!ENTITY l{n} "{}">"#, format!("&l{};", n - 1).repeat(10))).collect();
    let file = std::env::temp_dir();
    for document in [
        format!(r#"<!DOCTYPE a [<!ENTITY l0 "lol">{lol}]><a>&l9;</a>"#),
        format!(r#"<!DOCTYPE a [<!ENTITY x SYSTEM "file://{}">]><a>&x;</a>"#, file.display()),
        r#"<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:1/"> %x;]><a/>"#.to_owned(),
        r#"<!DOCTYPE a SYSTEM "http://127.0.0.1:1/"><a/>"#.to_owned(),
    ] {
        let begun = Instant::now();
        assert_eq!(reported(&schema, &document), "has a document type declaration, which is not allowed", "{document}");
        assert!(begun.elapsed() < Duration::from_secs(120));
    }
    assert!(reported(&schema, "<a>&x;</a>").contains("not well-formed"));
    assert_eq!(reported(&schema, "<a>&amp;&#65;</a>"), "");
    let hint = r#"<a xmlns:i="http://www.w3.org/2001/XMLSchema-instance" i:noNamespaceSchemaLocation="http://127.0.0.1:1/">x</a>"#;
    assert_eq!(reported(&schema, hint), "");
}

#[test]
fn a_schema_that_cannot_be_used_is_refused() {
    let element = r#"<xs:element name="a" type="xs:string"/>"#;
    for (text, detail) in [
        ("nonsense".to_owned(), "well-formed"),
        ("<schema/>".to_owned(), "is not an XML Schema"),
        (schema("<xs:nonsense/>"), "not what XML Schema 1.0 allows (line 1"),
        (schema(r#"<xs:element name="a" type="nobody"/>"#), "cannot be resolved"),
        (schema(r#"<xs:include schemaLocation="other.xsd"/>"#), "nothing is fetched"),
        (schema(r#"<xs:include schemaLocation="Cargo.toml"/>"#), "nothing is fetched"),
        (schema(r#"<xs:import namespace="urn:a" schemaLocation="http://127.0.0.1:1/"/>"#), "nothing is fetched"),
        (schema(r#"<xs:import namespace="urn:a" schemaLocation="file:///etc/passwd"/>"#), "nothing is fetched"),
        (schema(r#"<xs:redefine schemaLocation="other.xsd"/>"#), "nothing is fetched"),
        (format!("<!DOCTYPE x [<!ENTITY a \"b\">]>{}", schema(element)), "well-formed"),
    ] {
        let error = XsdSchema::compile("/schema", &text).expect_err(&text);
        assert_eq!(error.violations()[0].pointer, "/schema", "{text}");
        assert!(error.detail().contains(detail), "{text}: {}", error.detail());
    }
    let xml = schema(
        r#"<xs:import namespace="http://www.w3.org/XML/1998/namespace"/>
        <xs:element name="a"><xs:complexType><xs:attribute ref="xml:lang"/></xs:complexType></xs:element>"#,
    );
    assert!(XsdSchema::compile("/schema", &xml).is_ok(), "the xml namespace is built in");
}

fn sequence(particles: &str) -> String {
    format!(
        r#"<xs:element name="a"><xs:complexType><xs:sequence>{particles}</xs:sequence></xs:complexType></xs:element>"#
    )
}

#[test]
fn a_hostile_schema_is_refused_or_used_at_once() {
    let b = r#"<xs:element name="b" type="xs:string" minOccurs="0" maxOccurs="100000"/>"#;
    let mut loops = b.to_owned();
    (0..20).for_each(|_| loops = format!(r#"<xs:sequence minOccurs="0" maxOccurs="100000">{loops}</xs:sequence>"#));
    let mut counted = r#"<xs:element name="b" minOccurs="1000" maxOccurs="100000" type="xs:string"/>"#.to_owned();
    (0..4).for_each(|_| counted = format!(r#"<xs:choice minOccurs="500" maxOccurs="100000">{counted}</xs:choice>"#));
    let deep = format!("{}{}", "<xs:sequence>".repeat(5000), "</xs:sequence>".repeat(5000));
    let wide: String =
        (0..2000).map(|n| format!(r#"<xs:element name="e{n}" type="xs:string" minOccurs="0"/>"#)).collect();
    let groups: String = (0..30)
        .map(|n| format!(r#"<xs:group name="g{n}"><xs:sequence><xs:group ref="g{m}"/><xs:group ref="g{m}"/></xs:sequence></xs:group>"#, m = n + 1))
        .collect();
    let groups = format!(
        r#"{groups}<xs:group name="g30"><xs:sequence><xs:element name="x"/></xs:sequence></xs:group>{}"#,
        sequence(r#"<xs:group ref="g0"/>"#)
    );
    let pattern = r#"<xs:element name="a"><xs:simpleType><xs:restriction base="xs:string">
        <xs:pattern value="((a{1,1000}){1,1000}){1,1000}"/></xs:restriction></xs:simpleType></xs:element>"#;
    let circle =
        r#"<xs:complexType name="t"><xs:complexContent><xs:extension base="t"/></xs:complexContent></xs:complexType>"#;
    let many = "<b>x</b>".repeat(20_000);
    let mut stars = r#"<xs:element name="b" type="xs:string" minOccurs="0" maxOccurs="7"/>"#.to_owned();
    (0..20).for_each(|_| stars = format!(r#"<xs:sequence minOccurs="0" maxOccurs="unbounded">{stars}</xs:sequence>"#));
    let row: String = (0..100)
        .map(|n| format!(r#"<xs:element name="e{n}" type="xs:string" minOccurs="0" maxOccurs="100000"/>"#))
        .collect();
    let some: String =
        (0..20).map(|n| format!(r#"<xs:element name="e{n}" type="xs:string" minOccurs="0"/>"#)).collect();
    let hidden = format!(
        r#"<xs:group name="g"><xs:sequence>{b}</xs:sequence></xs:group>{}"#,
        sequence(r#"<xs:group ref="g" maxOccurs="7"/>"#)
    );
    let twice = |name: &str, make: &dyn Fn(usize, usize) -> String| {
        (0..30).map(|n| make(n, n + 1)).collect::<String>() + &name.replace('#', "30")
    };
    let unions = twice(r#"<xs:simpleType name="u#"><xs:restriction base="xs:int"/></xs:simpleType>"#, &|n, m| {
        format!(r#"<xs:simpleType name="u{n}"><xs:union memberTypes="u{m} u{m}"/></xs:simpleType>"#)
    });
    let attributes = twice(r#"<xs:attributeGroup name="g#"/>"#, &|n, m| {
        let inner = format!(r#"<xs:attributeGroup ref="g{m}"/>"#).repeat(2);
        format!(r#"<xs:attributeGroup name="g{n}">{inner}</xs:attributeGroup>"#)
    });
    let attributes = format!(r#"{attributes}<xs:complexType name="t"><xs:attributeGroup ref="g0"/></xs:complexType>"#);
    let substitutes: String =
        (0..2000).map(|n| format!(r#"<xs:element name="s{n}" type="xs:string" substitutionGroup="h"/>"#)).collect();
    let heads = r#"<xs:element ref="h" minOccurs="0"/><xs:element name="x" type="xs:string"/>"#.repeat(50);
    let substitutes = format!(r#"<xs:element name="h" type="xs:string"/>{substitutes}{}"#, sequence(&heads));
    for (name, body, expected) in [
        ("unions", unions, "unions have too many members"),
        ("attributes", attributes, "content models are too large"),
        ("substitutes", substitutes, "substituted in too many places"),
        ("occurs", sequence(b), ""),
        ("too often", sequence(&b.replace("100000", "4000000000")), "too large"),
        ("loops", sequence(&loops), "counted occurrences"),
        ("counted", sequence(&counted), "counted occurrences"),
        ("counted behind a group", hidden, "counted occurrences"),
        ("stars", sequence(&stars), "repeats within repetitions"),
        ("row", sequence(&row), "content is not what the schema allows"),
        (
            "repeated row",
            sequence(&format!(r#"<xs:sequence maxOccurs="unbounded">{row}</xs:sequence>"#)),
            "is repeated",
        ),
        ("repeated", sequence(&format!(r#"<xs:sequence maxOccurs="unbounded">{some}{b}</xs:sequence>"#)), ""),
        ("deep", sequence(&deep), "nested too deeply"),
        ("wide", sequence(&wide), "content models are too large"),
        ("doubling groups", groups, "content models are too large"),
        ("pattern", pattern.to_owned(), "not what XML Schema 1.0 allows"),
        ("many", (0..6_000).map(|n| format!(r#"<xs:element name="e{n}"/>"#)).collect(), "too many parts"),
        ("circle", circle.to_owned(), "not what XML Schema 1.0 allows"),
    ] {
        let begun = Instant::now();
        let outcome = match compile(&body) {
            Ok(schema) => reported(&schema, &format!("<a>{many}</a>")),
            Err(error) => error.detail().to_owned(),
        };
        assert!(outcome.contains(expected) && outcome.is_empty() == expected.is_empty(), "{name} {outcome}");
        assert!(begun.elapsed() < Duration::from_secs(120), "{name} {:?}", begun.elapsed());
    }
}

#[test]
fn a_hostile_document_costs_little_and_leaves_no_memory_in_use() {
    let schema = compile(r#"<xs:element name="a"><xs:complexType><xs:sequence>
        <xs:any processContents="skip" minOccurs="0" maxOccurs="unbounded"/></xs:sequence></xs:complexType></xs:element>"#).unwrap();
    let deep = format!("<a>{}{}</a>", "<b>".repeat(100_000), "</b>".repeat(100_000));
    let names: String = (0..40_000).map(|n| format!("<element-number-{n}/>")).collect();
    let attributes: String = (0..20_000).map(|n| format!(" a{n}='x'")).collect();
    let spaces: String = (0..20_000).map(|n| format!(" xmlns:a{n}='x'")).collect();
    for (document, expected) in [
        (deep, "is nested too deeply, or has too many parts"),
        (format!("<a>{}</a>", "<b/>".repeat(200_000)), "is nested too deeply, or has too many parts"),
        (format!("<a><b{attributes}/></a>"), ""),
        (format!("<a><b{spaces}/></a>"), ""),
        (format!("<a>{}</a>", "<b><!--".repeat(50_000)), "is not well-formed XML"),
    ] {
        let begun = Instant::now();
        let reported = reported(&schema, &document);
        assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", begun.elapsed());
        assert!(reported.starts_with(expected) && reported.is_empty() == expected.is_empty(), "{reported}");
    }
    assert_eq!(reported(&schema, &format!("<a>{names}</a>")), "");
    let names =
        |schema: &XsdSchema| schema.pool().idle.iter().map(|copy| copy.set.name_table.len()).collect::<Vec<_>>();
    let before: Vec<_> = schema.pool().idle.iter().map(|copy| copy.names).collect();
    assert_eq!(names(&schema), before, "one copy, and it has forgotten the names");
    assert_eq!(reported(&schema, "<a/>"), "");
    assert_eq!(reported(&schema, "<b/>"), "an element is not one the schema knows, at /b");
}

#[test]
fn documents_are_checked_on_several_threads_without_compiling() {
    let schema = compile(ORDER).unwrap();
    let text = super::tests::schema(ORDER);
    schema.complete(&text);
    let copies = schema.pool().count;
    assert_eq!(copies, copies_max(&text, 0));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(reported(&schema, r#"<order id="1"><sku>a</sku></order>"#), ""));
        }
    });
    let pool = schema.pool();
    assert_eq!((pool.idle.len(), pool.count), (copies, copies));
}

#[test]
fn a_pattern_on_the_content_of_a_complex_type_is_compiled_with_the_schema() {
    let content = |pattern: &str| {
        format!(
            r#"<xs:complexType name="text"><xs:simpleContent><xs:extension base="xs:string"/></xs:simpleContent></xs:complexType>
            <xs:element name="a"><xs:complexType><xs:simpleContent><xs:restriction base="text">
            <xs:pattern value="{pattern}"/></xs:restriction></xs:simpleContent></xs:complexType></xs:element>"#
        )
    };
    let schema = compile(&content("[a-z]{2}")).unwrap();
    assert_eq!(reported(&schema, "<a>ab</a>"), "");
    assert_ne!(reported(&schema, "<a>abc</a>"), "");
    // If this were left until a document is checked, it would be refused there.
    assert!(compile(&content("(")).is_err());
}

#[test]
fn what_a_minor_version_may_change() {
    let replaced = |from: &str, to: &str| {
        assert!(ORDER.contains(from), "{from}");
        ORDER.replace(from, to)
    };
    let extra = r#"<xs:element name="extra" type="xs:string"/>"#;
    for (new, expected) in [
        (ORDER.to_owned(), ""),
        (format!("<!-- a comment -->\n{ORDER}\n"), ""),
        (format!("<xs:annotation><xs:documentation>text</xs:documentation></xs:annotation>{ORDER}"), ""),
        (replaced(r#"name="sku" type="xs:string""#, r#"type="xs:string" id="x" name="sku""#), ""),
        (replaced("</xs:sequence>", r#"<xs:element name="note" type="xs:string" minOccurs="0"/></xs:sequence>"#), ""),
        (replaced("<xs:sequence>", r#"<xs:sequence><xs:element name="note" type="xs:string" minOccurs="0"/>"#), ""),
        (
            replaced(
                r#"<xs:enumeration value="open"/>"#,
                r#"<xs:enumeration value="open"/><xs:enumeration value="new"/>"#,
            ),
            "",
        ),
        (replaced(r#" use="required""#, ""), ""),
        (replaced("</xs:complexType>", r#"<xs:attribute name="more" type="xs:int"/></xs:complexType>"#), ""),
        (format!("{ORDER}{extra}"), ""),
        (replaced(r#"type="xs:decimal" minOccurs="0""#, r#"type="xs:decimal""#), "'minOccurs' changed"),
        (replaced(r#" maxOccurs="unbounded""#, ""), "'maxOccurs' changed"),
        (replaced(r#"type="xs:decimal""#, r#"type="xs:int""#), "'type' changed"),
        (replaced(r#"<xs:enumeration value="open"/>"#, ""), "enumeration was removed"),
        (replaced(r#"<xs:attribute name="state" type="state"/>"#, ""), "attribute 'state' was removed"),
        (replaced(r#"name="state" type="state""#, r#"name="state" type="state" use="required""#), "'use' changed"),
        (replaced("</xs:sequence>", &format!("{extra}</xs:sequence>")), "element 'extra' was added"),
        (replaced(r#"name="order""#, r#"name="other""#), "element 'order' was removed"),
        (format!(r#"{ORDER}<xs:element name="open"/>"#), "element 'open' was added"),
        (format!(r#"{ORDER}<xs:notation name="n" public="n"/>"#), "notation 'n' was added"),
    ] {
        let version = |body: &str| NewVersion {
            schema_type: SchemaType::Xsd,
            schema: schema(body).into(),
            ..NewVersion::json_schema(SchemaVersion::FIRST, Value::Null)
        };
        assert!(compile(&new).is_ok(), "{new}");
        let reported = super::super::incompatibilities("", &version(ORDER), &version(&new), None);
        match expected {
            "" => assert_eq!(reported, [], "{new}"),
            _ => {
                assert!(
                    reported.iter().any(|it| it.pointer == "/schema" && it.detail.contains(expected)),
                    "{new} {reported:?}"
                );
            }
        }
    }
}

#[test]
fn a_schema_is_shared_between_tasks() {
    fn shared<T: Send + Sync>() {}
    shared::<XsdSchema>();
}
