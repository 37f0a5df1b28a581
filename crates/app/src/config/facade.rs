//! The Fetcher facade, and the connections that organizations store.

use std::collections::{BTreeMap, BTreeSet};

use outport_pipeline::connections::IpNet;
use outport_source::SourceConfig;

use super::Settings;

/// What the facade may do.
pub struct FacadeConfig {
    /// Whether `/v1/fetcher` and `/v1/management/connections` are there.
    pub enabled: bool,
    /// Configured connections that every organization may read whole.
    pub shared: BTreeMap<String, SourceConfig>,
    /// Names of connections that resources read and organizations store.
    pub stored: BTreeSet<String>,
    /// Networks that no stored connection may lead into.
    pub denied: Vec<IpNet>,
    /// Whether keys of results begin with the tenant.
    pub tenant_in_key: bool,
}

pub(super) fn read(s: &mut Settings, connections: &BTreeMap<String, SourceConfig>) -> FacadeConfig {
    let mut shared = BTreeMap::new();
    for name in names(s, "facade.connections") {
        match connections.get(&name) {
            Some(config) => {
                shared.insert(name, config.clone());
            }
            None => s.wrong("facade.connections", "must name configured connections, no others"),
        }
    }
    let stored: BTreeSet<String> = names(s, "facade.storedConnections").into_iter().collect();
    if stored.iter().any(|name| connections.contains_key(name)) {
        s.wrong("facade.storedConnections", "must not name configured connections");
    }
    let mut denied = Vec::new();
    for network in names(s, "facade.deniedNetworks") {
        if let Ok(network) = network.parse::<IpNet>() {
            denied.push(network);
        } else {
            let rule = "must be networks such as 169.254.0.0/16, separated by commas";
            s.wrong("facade.deniedNetworks", rule);
        }
    }
    FacadeConfig {
        enabled: s.flag("facade.enabled"),
        shared,
        stored,
        denied,
        tenant_in_key: s.text("tenancy") == "multi",
    }
}

/// What stands between commas.
fn names(s: &Settings, name: &str) -> Vec<String> {
    let text = s.text(name);
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<FacadeConfig, Vec<String>> {
        let mut all = Settings::for_tests();
        all.set("connections.shop", "sqlite://shop.db");
        for (name, value) in settings {
            all.set(name, value);
        }
        Config::from_settings(all).map(|config| config.facade).map_err(|error| error.0)
    }

    #[test]
    fn what_is_not_said_is_not_shared_and_no_network_of_the_machine_itself_is_open() {
        let config = read(&[]).unwrap_or_else(|faults| panic!("{faults:?}"));
        assert!(config.enabled && config.shared.is_empty() && !config.tenant_in_key);
        for (address, is_denied) in [
            ("127.0.0.1", true),
            ("169.254.169.254", true),
            ("0.0.0.0", true),
            ("::1", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("10.0.0.1", false),
            ("192.0.2.1", false),
        ] {
            let address = address.parse().expect("an address");
            let denied =
                config.denied.iter().any(|network| network.contains::<&std::net::IpAddr>(&address));
            assert_eq!(denied, is_denied, "{address}");
        }
    }

    #[test]
    fn a_wrong_name_or_network_is_told() {
        for (name, value, rule) in [
            ("facade.connections", "shap", "must name configured connections"),
            ("facade.storedConnections", "shop", "must not name configured connections"),
            ("facade.deniedNetworks", "10.0.0.1/33", "must be networks such as"),
            ("facade.enabled", "perhaps", "must be one of true, false"),
        ] {
            let told = read(&[(name, value)]).err().expect("a fault").join("\n");
            assert!(told.contains(rule), "{told}");
        }
    }
}
