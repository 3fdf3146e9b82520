//! Which composition is proposed, and that nothing flutters.

use polyrail_core::control::rules::{
    Context, DWELL, FAR, HEAVY, InForce, LONG_FAT, LOSS, Reason, propose_composition,
};
use polyrail_core::control::{Proposable, SpecBytes, Time};
use polyrail_core::micro::{Composition, Scheme};
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

fn settled(composition: Composition) -> InForce {
    InForce { composition, age: DWELL }
}

/// What comes of it in the end, from CUBIC.
fn chosen(context: Context) -> Composition {
    propose_composition(&context, settled(Composition::SyncCubic), None)
        .map_or(Composition::SyncCubic, |proposal| proposal.composition)
}

#[test]
fn networks_get_what_suits_them() {
    let table = [
        (NEAR, Composition::SyncCubic),
        (Context { loss: 99, ..NEAR }, Composition::SyncCubic),
        (Context { loss: 5000, ..NEAR }, Composition::SyncCubic),
        (Context { loss: 5000, rtt: 2 * MS, ..NEAR }, Composition::SyncBbr),
        (Context { loss: 20_000, ..NEAR }, Composition::SyncBbr),
        (FAR_AWAY, Composition::SyncCubic),
        (Context { loss: 100, ..FAR_AWAY }, Composition::SyncBbr),
        (Context { rate: 125_000_000, ..FAR_AWAY }, Composition::SyncIllinois),
        (Context { rate: 125_000_000, loss: 100, ..FAR_AWAY }, Composition::SyncBbr),
        (Context { rate: u64::MAX, rtt: u64::MAX, ..FAR_AWAY }, Composition::SyncIllinois),
        (Context { scheme: Scheme::Asynchronous, ..FAR_AWAY }, Composition::AsyncPaced),
    ];
    for (context, composition) in table {
        assert_eq!(chosen(context), composition, "{context:?}");
    }
}

#[test]
fn a_reason_has_the_figures() {
    let context = Context { loss: 120, ..FAR_AWAY };
    let proposal = propose_composition(&context, settled(Composition::SyncCubic), None).unwrap();
    assert_eq!(proposal.reason, Reason::Lossy { loss: 120, limit: LOSS.enter, rtt: 20 * MS });
    assert_eq!(
        proposal.reason.to_string(),
        "120 of a million packets are lost (limit 20), round trip 20000 us"
    );
}

#[test]
fn a_pin_counts_where_it_fits_and_at_once() {
    let young = InForce { composition: Composition::SyncCubic, age: 0 };
    let pinned =
        |context, pin| propose_composition(&context, young, Some(pin)).map(|it| (it.composition, it.reason));
    assert_eq!(pinned(NEAR, Composition::SyncInterEth), Some((Composition::SyncInterEth, Reason::Pinned)));
    assert_eq!(pinned(NEAR, Composition::SyncIntraIb), None, "there is no InfiniBand");
    assert_eq!(pinned(NEAR, Composition::AsyncPaced), None, "all has to arrive");
    let infiniband = Context { infiniband: true, ..NEAR };
    assert_eq!(
        pinned(infiniband, Composition::SyncIntraIb),
        Some((Composition::SyncIntraIb, Reason::Pinned))
    );
    assert_eq!(pinned(NEAR, Composition::SyncCubic), None, "it is in force");
}

#[test]
fn another_scheme_counts_at_once_and_what_is_not_pinned_any_more_goes() {
    let young = InForce { composition: Composition::SyncCubic, age: 0 };
    let asynchronous = Context { scheme: Scheme::Asynchronous, ..NEAR };
    assert_eq!(propose_composition(&asynchronous, young, None).unwrap().composition, Composition::AsyncPaced);
    for one in Composition::ALL.iter().copied().filter(|one| one.is_pinned_only()) {
        let context = Context { scheme: one.scheme(), ..NEAR };
        assert!(!propose_composition(&context, settled(one), None).unwrap().composition.is_pinned_only());
    }
}

#[test]
fn peers_tell_each_other_of_compositions_by_their_numbers() {
    for one in Composition::ALL.iter().copied() {
        assert_eq!(one.to_spec().as_bytes(), [one as u8]);
        assert_eq!(Composition::from_spec(&one.to_spec()), Some(one));
        assert!(one.delivers_all(), "each has a stream");
    }
    let spec = |bytes: &[u8]| Composition::from_spec(&SpecBytes::new(bytes).unwrap());
    assert_eq!((spec(&[]), spec(&[200]), spec(&[1, 0])), (None, None, None));
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
fn changes(mut composition: Composition, contexts: impl IntoIterator<Item = Context>) -> Vec<u64> {
    let mut age = DWELL;
    let mut times = Vec::new();
    for (second, context) in contexts.into_iter().enumerate() {
        if let Some(proposal) = propose_composition(&context, InForce { composition, age }, None) {
            assert_eq!(proposal.composition.scheme(), context.scheme);
            assert!(!proposal.composition.is_pinned_only());
            (composition, age) = (proposal.composition, 0);
            times.push(second as u64);
        }
        age += 1000 * MS;
    }
    times
}

proptest! {
    #[test]
    fn what_stays_as_it_is_changes_nothing_twice(context in context(), which in 0..Composition::ALL.len()) {
        prop_assert!(changes(Composition::ALL[which], [context; 100]).len() <= 1);
    }

    #[test]
    fn noise_changes_nothing_sooner_than_after_the_dwell(
        contexts in prop::collection::vec(context(), 100), which in 0..Composition::ALL.len()
    ) {
        let contexts = contexts.into_iter().map(|context| Context { scheme: Scheme::Synchronous, ..context });
        let times = changes(Composition::ALL[which], contexts);
        let dwell = DWELL / (1000 * MS);
        prop_assert!(times.windows(2).all(|pair| pair[0] + dwell <= pair[1]), "{times:?}");
    }

    /// Noise that stays between the two values of a limit changes at most once.
    #[test]
    fn noise_at_a_limit_changes_nothing_twice(
        noise in prop::collection::vec((LOSS.leave..200, FAR.leave..2 * FAR.enter, LONG_FAT.leave..2 * LONG_FAT.enter), 100),
        which in 0..4_u8,
    ) {
        let contexts = noise.into_iter().map(|(loss, rtt, bytes)| match which {
            0 => Context { loss: loss as u32, ..FAR_AWAY },
            1 => Context { loss: 200, rtt, ..FAR_AWAY },
            2 => Context { loss: (HEAVY.leave + bytes % HEAVY.enter) as u32, ..NEAR },
            _ => Context { rate: bytes * 50, rtt: 20 * MS, ..FAR_AWAY },
        });
        prop_assert!(changes(Composition::SyncCubic, contexts).len() <= 1);
    }
}
