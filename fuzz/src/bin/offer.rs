//! Offers: what is read can be printed, and says the same when it is written and read again.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_core::wire::{Offer, OfferView};

fuzz_target!(|data: &[u8]| {
    if let Ok(view) = OfferView::parse(data) {
        let _ = format!("{view:?}");
    }
    if let Ok(offer) = Offer::parse(data) {
        let _ = format!("{offer:?}");
        assert_eq!(Offer::parse(&offer.to_bytes()), Ok(offer));
    }
});
