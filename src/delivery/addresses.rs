//! Which addresses belong to the public internet, and not to a private or special network.
//!
//! - IPv4 is public unless a range here says otherwise; of IPv6 only 2000::/3 is, less the ranges here.
//! - An address that carries another one (NAT64) is judged by the one it carries.
//! - A refusal names the kind of network and never the address: callers must not learn what a name resolves to inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address may not be called: the kind of network it is in; `None`: it is public.
pub(super) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// The special ranges of IPv4, from IANA's registry.
const V4: [(Ipv4Addr, u32, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared (carrier-grade NAT)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    // Services of the cloud provider respond here on every machine, although the range is public.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// The special ranges of IPv6. What is in none of them and not in 2000::/3 is reserved.
const V6: [(Ipv6Addr, u32, &str); 11] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "IPv4-mapped"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "private"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// The well-known prefix of NAT64; the last 32 bits are an IPv4 address.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |range: Ipv4Addr, bits: u32| (address.to_bits() ^ range.to_bits()).leading_zeros() >= bits;
    V4.iter().find(|(range, bits, _)| within(*range, *bits)).map(|(_, _, network)| *network)
}

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let within = |range: Ipv6Addr, bits: u32| (address.to_bits() ^ range.to_bits()).leading_zeros() >= bits;
    if within(NAT64, 96) {
        let [.., a, b, c, d] = address.octets();
        return not_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    let special = V6.iter().find(|(range, bits, _)| within(*range, *bits)).map(|(_, _, network)| *network);
    let is_global = within(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
    special.or((!is_global).then_some("reserved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_special_range_is_known_by_its_first_and_last_address_and_ends_there() {
        for (first, last, network) in [
            ("0.0.0.0", "0.255.255.255", "unspecified"),
            ("10.0.0.0", "10.255.255.255", "private"),
            ("100.64.0.0", "100.127.255.255", "shared (carrier-grade NAT)"),
            ("127.0.0.0", "127.255.255.255", "loopback"),
            ("169.254.0.0", "169.254.255.255", "link-local"),
            ("168.63.129.16", "168.63.129.16", "link-local"),
            ("172.16.0.0", "172.31.255.255", "private"),
            ("192.0.0.0", "192.0.0.255", "reserved"),
            ("192.0.2.0", "192.0.2.255", "documentation"),
            ("192.168.0.0", "192.168.255.255", "private"),
            ("198.18.0.0", "198.19.255.255", "benchmarking"),
            ("198.51.100.0", "198.51.100.255", "documentation"),
            ("203.0.113.0", "203.0.113.255", "documentation"),
            ("224.0.0.0", "239.255.255.255", "multicast"),
            ("240.0.0.0", "255.255.255.254", "reserved"),
            ("255.255.255.255", "255.255.255.255", "broadcast"),
            ("::", "::", "unspecified"),
            ("::1", "::1", "loopback"),
            ("::2", "::ffff", "reserved"),
            ("::ffff:0.0.0.0", "::ffff:255.255.255.255", "IPv4-mapped"),
            ("64:ff9b::7f00:1", "64:ff9b::7fff:ffff", "loopback"),
            ("64:ff9b::a9fe:a9fe", "64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "reserved"),
            ("100::", "100::ffff:ffff:ffff:ffff", "reserved"),
            ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
            ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
            ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "6to4"),
            ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
            ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved"),
            ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
            ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local"),
            ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private"),
            ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
        ] {
            for address in [first, last] {
                assert_eq!(not_public(address.parse().unwrap()), Some(network), "{address}");
            }
        }
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:db7::1",
            "2001:db9::1",
            "2606:4700::1111",
            "2003::1",
            "3ffe::1",
            "3fff:1000::1",
            "64:ff9b::808:808",
        ] {
            assert_eq!(not_public(address.parse().unwrap()), None, "{address}");
        }
    }
}
