//! The server's time per decision, and how many decisions a second it makes.

use harness::{Ask, Server};

use crate::MANY;
use crate::figures::{Measured, Speed};
use rivals::{Requests, Wire, run};

/// Decisions under way on each connection when pipelining, and the connections: while the client reads the replies of one,
/// the server has work from the others.
const PIPELINE: usize = 100;
const PIPELINED_CONNECTIONS: usize = 4;
const PIPELINED_CALLS: usize = 40_000;

/// Connections without pipelining, each with one decision under way.
const CONNECTIONS: usize = 50;
const SINGLE_CALLS: usize = 20_000;

/// The connections of all measurements, made once: a new connection costs the server buffers that grow at first.
pub(crate) struct Wires {
    pipelined: Vec<Wire>,
    single: Vec<Wire>,
}

impl Wires {
    pub(crate) fn connect(server: &Server) -> Wires {
        let connect = |count| (0..count).map(|_| Wire::connect(server)).collect();
        Wires { pipelined: connect(PIPELINED_CONNECTIONS), single: connect(CONNECTIONS) }
    }

    /// Calls every key once, so that what is to be denied is empty and no key is new later.
    pub(crate) fn fill(&mut self, measured: &Measured, keys: usize) {
        let contender = measured.contender.first();
        run(&mut self.pipelined, &contender, &Requests::new(&contender, keys, keys), PIPELINE);
    }

    /// One round of one contender: with one key and with many.
    pub(crate) fn measure(&mut self, server: &Server, measured: &mut Measured) {
        let contender = &measured.contender;
        let mut connection = server.connection();
        if let Some(size) = contender.hot_keys {
            connection.ask::<()>(&format!("CONFIG SET rl.hot-keys {size}"));
        }
        for (keys, speed) in [(1, &mut measured.hot), (MANY, &mut measured.many)] {
            let Speed { cpu, pipelined, single, .. } = speed;
            let requests = Requests::new(contender, keys, PIPELINED_CALLS);
            connection.ask::<()>("CONFIG RESETSTAT");
            let pipeline = run(&mut self.pipelined, contender, &requests, PIPELINE);
            let mut micros = 0;
            for command in &contender.booked {
                let (calls, time) = server.command_stats(command);
                assert_eq!(calls, PIPELINED_CALLS as u64, "{}: calls of {command}", contender.label());
                micros += time;
            }
            cpu.push(micros as f64 / PIPELINED_CALLS as f64);
            pipelined.push(PIPELINED_CALLS as f64 / pipeline.time.as_secs_f64());
            measured.reply_bytes = pipeline.reply_bytes as f64 / PIPELINED_CALLS as f64;

            let requests = Requests::new(contender, keys, SINGLE_CALLS);
            let time = run(&mut self.single, contender, &requests, 1).time;
            single.push(SINGLE_CALLS as f64 / time.as_secs_f64());
        }
        if contender.hot_keys.is_some() {
            connection.ask::<()>("CONFIG SET rl.hot-keys 64");
        }
    }
}
