//! Which composition is proposed, and that nothing flutters.

use polyrail_core::control::Time;
use polyrail_core::control::rules::{
    Context, DWELL, FAR, InForce, Kind, LONG_FAT, LOSS, Reason, Scheme, propose_kind,
};
use proptest::prelude::*;

const MS: Time = 1_000_000;

const NEAR: Context = Context {
    scheme: Scheme::Synchronous,
    same_site: true,
    infiniband: false,
    rate: 1_250_000_000,
    loss: 0,
    reordering: 0,
    rtt: MS / 10,
    mtu: 1500,
};
const FAR_AWAY: Context = Context { same_site: false, rate: 12_500_000, rtt: 20 * MS, ..NEAR };

fn settled(kind: Kind) -> InForce {
    InForce { kind, age: DWELL }
}

/// What comes of it in the end, from CUBIC.
fn chosen(context: Context) -> Kind {
    propose_kind(&context, settled(Kind::SyncCubic), None).map_or(Kind::SyncCubic, |proposal| proposal.kind)
}

#[test]
fn networks_get_what_suits_them() {
    let table = [
        (NEAR, Kind::SyncCubic),
        (Context { loss: 99, ..NEAR }, Kind::SyncCubic),
        (Context { loss: 5000, ..NEAR }, Kind::SyncCubic),
        (Context { loss: 5000, rtt: 2 * MS, ..NEAR }, Kind::SyncBbr),
        (FAR_AWAY, Kind::SyncCubic),
        (Context { loss: 100, ..FAR_AWAY }, Kind::SyncBbr),
        (Context { rate: 125_000_000, ..FAR_AWAY }, Kind::SyncIllinois),
        (Context { rate: 125_000_000, loss: 100, ..FAR_AWAY }, Kind::SyncBbr),
        (Context { rate: u64::MAX, rtt: u64::MAX, ..FAR_AWAY }, Kind::SyncIllinois),
        (Context { scheme: Scheme::Asynchronous, ..FAR_AWAY }, Kind::AsyncPaced),
    ];
    for (context, kind) in table {
        assert_eq!(chosen(context), kind, "{context:?}");
    }
}

#[test]
fn a_reason_has_the_figures() {
    let context = Context { loss: 120, ..FAR_AWAY };
    let proposal = propose_kind(&context, settled(Kind::SyncCubic), None).unwrap();
    assert_eq!(proposal.reason, Reason::Lossy { loss: 120, limit: LOSS.enter, rtt: 20 * MS });
    assert_eq!(
        proposal.reason.to_string(),
        "120 of a million packets are lost (limit 100), round trip 20000 us"
    );
}

#[test]
fn a_pin_counts_where_it_fits_and_at_once() {
    let young = InForce { kind: Kind::SyncCubic, age: 0 };
    let pinned = |context, pin| propose_kind(&context, young, Some(pin)).map(|it| (it.kind, it.reason));
    assert_eq!(pinned(NEAR, Kind::SyncInterEth), Some((Kind::SyncInterEth, Reason::Pinned)));
    assert_eq!(pinned(NEAR, Kind::SyncIntraIb), None, "there is no InfiniBand");
    assert_eq!(pinned(NEAR, Kind::AsyncPaced), None, "all has to arrive");
    let infiniband = Context { infiniband: true, ..NEAR };
    assert_eq!(pinned(infiniband, Kind::SyncIntraIb), Some((Kind::SyncIntraIb, Reason::Pinned)));
    assert_eq!(pinned(NEAR, Kind::SyncCubic), None, "it is in force");
}

#[test]
fn another_scheme_counts_at_once_and_what_is_not_pinned_any_more_goes() {
    let young = InForce { kind: Kind::SyncCubic, age: 0 };
    let asynchronous = Context { scheme: Scheme::Asynchronous, ..NEAR };
    assert_eq!(propose_kind(&asynchronous, young, None).unwrap().kind, Kind::AsyncPaced);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.is_pinned_only()) {
        let context = Context { scheme: kind.scheme(), ..NEAR };
        assert!(!propose_kind(&context, settled(kind), None).unwrap().kind.is_pinned_only());
    }
}

fn context() -> impl Strategy<Value = Context> {
    let scheme = prop_oneof![4 => Just(Scheme::Synchronous), 1 => Just(Scheme::Asynchronous)];
    let loss = prop_oneof![0..200_u32, any::<u32>()];
    let rtt = prop_oneof![0..3 * MS, any::<u64>()];
    let rate = prop_oneof![Just(12_500_000), 0..3_000_000_000_u64, any::<u64>()];
    (scheme, any::<bool>(), any::<bool>(), rate, loss, rtt).prop_map(
        |(scheme, same_site, infiniband, rate, loss, rtt)| Context {
            scheme,
            same_site,
            infiniband,
            rate,
            loss,
            rtt,
            ..NEAR
        },
    )
}

/// How often it changes, and when, while what is known is looked at each second.
fn changes(mut kind: Kind, contexts: impl IntoIterator<Item = Context>) -> Vec<u64> {
    let mut age = DWELL;
    let mut times = Vec::new();
    for (second, context) in contexts.into_iter().enumerate() {
        if let Some(proposal) = propose_kind(&context, InForce { kind, age }, None) {
            assert_eq!(proposal.kind.scheme(), context.scheme);
            assert!(!proposal.kind.is_pinned_only());
            (kind, age) = (proposal.kind, 0);
            times.push(second as u64);
        }
        age += 1000 * MS;
    }
    times
}

proptest! {
    #[test]
    fn what_stays_as_it_is_changes_nothing_twice(context in context(), kind in 0..12_usize) {
        prop_assert!(changes(Kind::ALL[kind], [context; 100]).len() <= 1);
    }

    #[test]
    fn noise_changes_nothing_sooner_than_after_the_dwell(
        contexts in prop::collection::vec(context(), 100), kind in 0..12_usize
    ) {
        let contexts = contexts.into_iter().map(|context| Context { scheme: Scheme::Synchronous, ..context });
        let times = changes(Kind::ALL[kind], contexts);
        let dwell = DWELL / (1000 * MS);
        prop_assert!(times.windows(2).all(|pair| pair[0] + dwell <= pair[1]), "{times:?}");
    }

    /// Noise that stays between the two values of a limit changes at most once.
    #[test]
    fn noise_at_a_limit_changes_nothing_twice(
        noise in prop::collection::vec((LOSS.leave..200, FAR.leave..2 * FAR.enter, LONG_FAT.leave..2 * LONG_FAT.enter), 100),
        which in 0..3_u8,
    ) {
        let contexts = noise.into_iter().map(|(loss, rtt, bytes)| match which {
            0 => Context { loss: loss as u32, ..FAR_AWAY },
            1 => Context { loss: 200, rtt, ..FAR_AWAY },
            _ => Context { rate: bytes * 50, rtt: 20 * MS, ..FAR_AWAY },
        });
        prop_assert!(changes(Kind::SyncCubic, contexts).len() <= 1);
    }
}
