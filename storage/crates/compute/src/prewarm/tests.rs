use proptest::prelude::*;

use super::*;

fn dump(pages: &[(u32, u32, u32, u32, u32)]) -> Vec<u8> {
    let mut text = format!("<<{}>>\n", pages.len());
    for (database, tablespace, relation, fork, page) in pages {
        text += &format!("{database},{tablespace},{relation},{fork},{page}\n");
    }
    text.into_bytes()
}

fn kept(text: &str) -> Result<List, BadList> {
    List::from_kept(text.as_bytes())
}

#[test]
fn neighbours_are_kept_as_one_range_and_come_back_as_pages() {
    let pages = [
        (5, 1663, 20, 0, 8),
        (5, 1663, 20, 0, 7),
        (5, 1663, 20, 0, 7),
        (5, 1663, 20, 1, 0),
        (0, 1664, 1260, 0, 0),
        (5, 1663, 20, 0, 10),
    ];
    let list = List::from_dump(&dump(&pages)).unwrap();
    let text = "weir-prewarm 1 4 5\n0 1664 1260 0 0 1\n5 1663 20 0 7 2\n5 1663 20 0 10 1\n5 1663 20 1 0 1\n";
    assert_eq!(String::from_utf8(list.to_kept()).unwrap(), text);
    assert_eq!(kept(text).unwrap(), list);
    assert_eq!(
        String::from_utf8(list.to_dump()).unwrap(),
        "<<5>>\n0,1664,1260,0,0\n5,1663,20,0,7\n5,1663,20,0,8\n5,1663,20,0,10\n5,1663,20,1,0\n"
    );
}

#[test]
fn what_no_start_can_load_is_left_out_of_what_postgres_wrote() {
    let pages = [
        (5, 70_000, 20, 0, 0),
        (0, 1663, 20, 0, 0),
        (TEMPLATE0, 1663, 20, 0, 0),
        (5, 1663, 0, 0, 0),
        (5, 1663, 20, 4, 0),
        (5, 1663, 20, 0, u32::MAX),
    ];
    assert_eq!(List::from_dump(&dump(&pages)).unwrap(), List::default());
}

#[test]
fn a_list_that_is_not_whole_is_refused_and_the_fault_is_named() {
    assert_eq!(kept(""), Err(BadList::Header));
    assert_eq!(kept("weir-prewarm 2 0 0\n"), Err(BadList::Header));
    assert_eq!(kept("weir-prewarm 1 x 0\n"), Err(BadList::Header));
    let one = "weir-prewarm 1 1 2\n5 1663 20 0 7 2";
    assert_eq!(kept(one), Err(BadList::Torn));
    assert_eq!(
        kept("weir-prewarm 1 2 2\n5 1663 20 0 7 2\n"),
        Err(BadList::Torn)
    );
    for line in [
        "5 1663 20 0 7",
        "5 1663 20 0 7 2 1",
        "5 1663 20 0 7 -2",
        "5 1663 20 0 7 +2",
        "5 1663 20 0 7 0",
        "5 1663 20 9 7 2",
        "5 9 20 0 7 2",
        "0 1663 20 0 7 2",
        "5 1663 20 0 4294967295 2",
        "5 1663 20 0 4294967296 2",
        "5 1663 20 0  2",
    ] {
        let text = format!("weir-prewarm 1 1 2\n{line}\n");
        assert_eq!(kept(&text), Err(BadList::Line(2)), "{line}");
    }
    let twice = "weir-prewarm 1 2 4\n5 1663 20 0 7 2\n5 1663 20 0 8 2\n";
    assert_eq!(kept(twice), Err(BadList::Line(3)));
    assert_eq!(
        List::from_dump(b"<<2>>\n5,1663,20,0,7\n"),
        Err(BadList::Torn)
    );
    assert_eq!(
        List::from_dump(b"<<1>>\n5,1663,20,0\n"),
        Err(BadList::Line(2))
    );
    assert_eq!(List::from_dump(b"\xff"), Err(BadList::Header));
}

#[test]
fn a_million_foreign_relations_are_refused_by_their_number() {
    let mut text = format!("weir-prewarm 1 {0} {0}\n", 1_000_000);
    for relation in 1..=1_000_000 {
        text += &format!("5 1663 {relation} 0 0 1\n");
    }
    assert!(matches!(kept(&text), Err(BadList::TooLong(_))));
    let few = MAX_RANGES + 1;
    let mut text = format!("weir-prewarm 1 {few} {few}\n");
    for relation in 1..=few {
        text += &format!("5 1663 {relation} 0 0 1\n");
    }
    assert_eq!(
        kept(&text),
        Err(BadList::TooLong("32769 ranges".to_owned()))
    );
    let many = "weir-prewarm 1 1 131073\n5 1663 20 0 0 131073\n";
    assert_eq!(kept(many), Err(BadList::TooLong("131073 pages".to_owned())));
}

#[test]
fn of_too_much_the_longest_ranges_and_the_fullest_databases_stay() {
    let mut pages: Vec<_> = (0..MAX_RANGES as u32 + 10)
        .map(|n| (5, 1663, 100 + n, 0, 0))
        .collect();
    pages.extend((0..50).map(|page| (5, 1663, 90, 0, page)));
    let list = List::from_dump(&dump(&pages)).unwrap();
    assert_eq!(list.0.len(), MAX_RANGES);
    assert_eq!(list.pages(), MAX_RANGES as u64 - 1 + 50);
    assert_eq!(kept(&String::from_utf8(list.to_kept()).unwrap()), Ok(list));

    let mut pages: Vec<_> = (0..MAX_DATABASES as u32 + 5)
        .map(|n| (100 + n, 1663, 20, 0, 0))
        .collect();
    pages.extend([(900, 1663, 20, 0, 0), (900, 1663, 20, 0, 1)]);
    let list = List::from_dump(&dump(&pages)).unwrap();
    assert_eq!(list.databases().len(), MAX_DATABASES);
    assert!(list.databases().contains(&900));

    let pages: Vec<_> = (0..MAX_PAGES as u32 + 5)
        .map(|page| (5, 1663, 20, 0, page))
        .collect();
    assert_eq!(List::from_dump(&dump(&pages)).unwrap().pages(), MAX_PAGES);
}

#[test]
fn pages_of_databases_that_are_gone_are_left_out() {
    let pages = [
        (0, 1664, 1260, 0, 0),
        (5, 1663, 20, 0, 7),
        (9, 1663, 20, 0, 7),
    ];
    let mut list = List::from_dump(&dump(&pages)).unwrap();
    assert_eq!(list.keep_databases(&BTreeSet::from([5])), 1);
    assert_eq!(list.pages(), 2);
}

proptest! {
    #[test]
    fn every_list_comes_back_and_none_of_its_beginnings_does(
        pages in prop::collection::vec((5u32..8, 20u32..24, 0u32..3, 0u32..40), 1..200),
        cut in any::<prop::sample::Index>(),
    ) {
        let pages: Vec<_> = pages.into_iter().map(|(d, r, f, p)| (d, 1663, r, f, p)).collect();
        let list = List::from_dump(&dump(&pages)).unwrap();
        let distinct: BTreeSet<_> = pages.iter().collect();
        prop_assert_eq!(list.pages(), distinct.len() as u64);
        let text = list.to_kept();
        prop_assert_eq!(List::from_kept(&text), Ok(list.clone()));
        prop_assert_eq!(List::from_dump(&list.to_dump()), Ok(list.clone()));
        let cut = cut.index(text.len());
        prop_assert!(List::from_kept(&text[..cut]).is_err());
    }

    #[test]
    fn no_text_does_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), lines in "[0-9 ,\n<>]{0,300}") {
        let _ = (List::from_kept(&bytes), List::from_dump(&bytes));
        for text in [format!("weir-prewarm 1 {lines}"), lines] {
            let list = List::from_kept(text.as_bytes());
            prop_assert!(list.is_err() || list.unwrap().check_bounds().is_ok());
            let _ = List::from_dump(text.as_bytes());
        }
    }
}

#[test]
fn pages_that_were_read_first_survive_being_kept() {
    let rel = |db, spc, fork| RelTag {
        spc,
        db,
        rel: 1259,
        fork,
    };
    let own = rel(5, DEFAULT_TABLESPACE, ForkNumber::Main);
    let shared = rel(0, GLOBAL_TABLESPACE, ForkNumber::VisibilityMap);
    let impossible = rel(5, 4000, ForkNumber::Main);
    let read = [
        (own, 9),
        (own, 3),
        (own, 4),
        (shared, 0),
        (own, 3),
        (impossible, 1),
    ];
    let list = List::of_pages(read);
    assert_eq!(List::from_kept(&list.to_kept()).as_ref(), Ok(&list));
    let pages: Vec<_> = list.each_page().collect();
    assert_eq!(pages, [(shared, 0), (own, 3), (own, 4), (own, 9)]);
}
