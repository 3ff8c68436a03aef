//! Whether others can reach the box, and the box others.

use std::{net::IpAddr, sync::Arc};

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};

use super::off_thread;
use crate::facts::routes;

fn decide(addresses: &[IpAddr], default_route: bool) -> Vec<Finding> {
    let finding = |code, said, hint: &str| vec![Finding { code, subject: "network".into(), said, hint: hint.into(), fix: None }];
    if addresses.is_empty() {
        return finding(
            IssueCode::NoNetworkAddress,
            Said::NoNetworkAddress {},
            "Check the cable and the DHCP server, or set a fixed address on the network page or the local screen.",
        );
    }
    if !default_route {
        let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return finding(
            IssueCode::NoDefaultRoute,
            Said::NoDefaultRoute { addresses },
            "Set a gateway on the network page. In a network without one, dismiss this issue.",
        );
    }
    Vec::new()
}

/// Looks at addresses and routes of the kernel.
pub(super) struct Network {
    pub(super) addresses: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// False where only this machine itself uses the agent.
    pub(super) watched: bool,
}

#[async_trait]
impl Check for Network {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::NoNetworkAddress, IssueCode::NoDefaultRoute]
    }

    async fn look(&self) -> Looked {
        if !self.watched {
            return Looked::NotChecked("The console is for this machine alone: only loopback is listened on.".to_owned());
        }
        let addresses = Arc::clone(&self.addresses);
        match off_thread("The network", move || Ok((addresses(), routes::has_default_route()?))).await {
            Ok((addresses, route)) => Looked::Seen(decide(&addresses, route)),
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_without_an_address_is_not_also_blamed_for_having_no_gateway() {
        let found = decide(&[], false);
        assert_eq!(found.iter().map(|f| f.code).collect::<Vec<_>>(), [IssueCode::NoNetworkAddress]);
    }

    #[test]
    fn a_missing_gateway_is_told_with_the_address_there_is() {
        let own: IpAddr = "10.0.2.15".parse().unwrap();
        assert!(decide(&[own], false)[0].said.to_string().contains("10.0.2.15"));
        assert!(decide(&[own], true).is_empty());
    }
}
