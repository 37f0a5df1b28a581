//! Where stored connections may not lead, whatever form an address has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

/// Whether these networks have this address, or an IPv4 address that stands in it. Who denies
/// loopback means this machine, and so denies all of its addresses.
pub fn is_denied(networks: &[IpNet], address: SocketAddr) -> bool {
    let listed = |address: IpAddr| networks.iter().any(|network| network.contains(&address));
    let home = listed(Ipv4Addr::LOCALHOST.into()) || listed(Ipv6Addr::LOCALHOST.into());
    let plain = address.ip().to_canonical();
    let within = match plain {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(address) => embedded(address),
    };
    let forms = || within.iter().map(|&address| IpAddr::V4(address)).chain([plain]);
    forms().any(listed)
        || home && (is_own(address) || forms().any(|form| is_own(SocketAddr::new(form, 0))))
}

/// Whether an address is one of this machine's: no other can be bound to.
fn is_own(mut address: SocketAddr) -> bool {
    address.set_port(0);
    UdpSocket::bind(address).is_ok()
}

/// The IPv4 addresses that routers, gateways and tunnels may make of an IPv6 address.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let parts = address.segments();
    let at = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match parts {
        // IPv4-compatible (RFC 4291); `::` and `::1` are not.
        [0, 0, 0, 0, 0, 0, (1..), _]
        // IPv4-translated (RFC 2765).
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        // NAT64 by the well-known prefix (RFC 6052).
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _]
        // ISATAP (RFC 5214).
        | [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => vec![at(parts[6], parts[7])],
        // NAT64 by the local prefix (RFC 8215), which a network cuts as it likes: the forms of
        // RFC 6052 for prefixes of 48, 56, 64 and 96 bits, around eight bits that are none of theirs.
        [0x64, 0xff9b, 1, ..] => {
            let byte = address.octets();
            [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]]
                .map(|[a, b, c, d]| Ipv4Addr::new(byte[a], byte[b], byte[c], byte[d]))
                .to_vec()
        }
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => vec![at(high, low)],
        // Teredo (RFC 4380): its server, and its client with all bits turned.
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            vec![at(server_high, server_low), at(!high, !low)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(networks: &[&str], address: &str) -> bool {
        let networks: Vec<IpNet> =
            networks.iter().map(|network| network.parse().expect("a network")).collect();
        is_denied(&networks, SocketAddr::new(address.parse().expect("an address"), 5432))
    }

    #[test]
    fn an_ipv4_address_is_denied_in_every_form_of_ipv6() {
        for form in [
            "10.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
            "64:ff9b:1:a00:0:100::",
            "64:ff9b:1:a00:0:100:102:304",
            "64:ff9b:1:a:0:1::",
            "64:ff9b:1:0:a:0:100:0",
            "2002:a00:1::",
            "2002:a00:1:5::7",
            "2001:0:a00:1::1",
            "2001:0:c000:201:0:0:f5ff:fffe",
            "fe80::5efe:10.0.0.1",
            "2001:db8::200:5efe:10.0.0.1",
        ] {
            assert!(denied(&["10.0.0.0/8"], form), "{form}");
        }
        for other in [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "64:ff9b::c000:201",
            "2002:c000:201::a00:1",
            "2001:db8::a00:1",
            "2001:0:c000:201::a00:1",
            "::1",
        ] {
            assert!(!denied(&["10.0.0.0/8", "0.0.0.0/8"], other), "{other}");
        }
    }

    #[test]
    fn who_denies_loopback_denies_every_address_of_the_machine() {
        // Of the machine, and in neither list.
        for own in ["127.0.0.2", "::ffff:127.0.0.2", "64:ff9b::7f00:2", "0.0.0.0"] {
            assert!(denied(&["127.0.0.1/32"], own), "{own}");
            assert!(!denied(&["192.0.2.0/24"], own), "{own} where the machine is allowed");
        }
        // Of nobody: kept for documents.
        for other in ["192.0.2.1", "2001:db8::1"] {
            assert!(!denied(&["127.0.0.1/32", "::1/128"], other), "{other}");
        }
    }
}
