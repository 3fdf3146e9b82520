//! From an agreed connection to a link: it is the link.

use super::TcpRail;
use crate::rail::connect::{Agreed, Connector, Joined};
use polyrail_core::cost::RailCosts;
use polyrail_core::frame::MAX_PAYLOAD;

impl Connector for TcpRail {
    fn adopt(&mut self, agreed: Agreed<'_>) -> Result<Joined, String> {
        let link = self.adopt_sealed(agreed.connection, agreed.leftover, agreed.keys);
        let link = link.map_err(|why| why.to_string())?;
        // fragments as long as a frame may be: 1.3 times the bandwidth of 256 KiB where the link is not the limit
        let (eager_max, fragment) = (agreed.settings.tcp_eager, MAX_PAYLOAD);
        Ok(Joined { link, costs: RailCosts::TCP, eager_max, fragment, direct_refused: None })
    }
}
