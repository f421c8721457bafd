//! Ports for servers that must listen on TCP.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// A cluster node's bus listens this much above its port.
const BUS_OFFSET: u16 = 10_000;
/// Below what kernels give to outgoing connections, with the bus too.
const FIRST: u16 = 10_000;
const LAST: u16 = 19_999;

/// A free port of the loopback interface, with its bus port.
///
/// Between finding a port free and the server's taking it another test could find the same. Hence the lease: the UDP port
/// of that number, which no server wants, is held as long as the port is in use.
#[derive(Debug)]
pub struct Port {
    pub(crate) number: u16,
    _lease: UdpSocket,
}

impl Port {
    /// Finds one, and holds it until dropped.
    ///
    /// # Panics
    /// If all are taken.
    pub fn lease() -> Port {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let range = u32::from(LAST - FIRST) + 1;
        for _ in 0..range {
            // Processes start at different places, or each would try the ports of all others first.
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let number = FIRST + ((process::id().wrapping_mul(61) + step) % range) as u16;
            let Ok(lease) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            if [number, number + BUS_OFFSET]
                .iter()
                .all(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
            {
                return Port { number, _lease: lease };
            }
        }
        panic!("no free port from {FIRST} to {LAST}");
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}
