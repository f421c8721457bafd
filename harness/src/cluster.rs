//! A cluster of servers.

use redis::cluster::{ClusterClient, ClusterClientBuilder};

use crate::ask::Ask;
use crate::server::{Builder, Server};
use crate::wait;

const SLOTS: usize = 16_384;

/// A running cluster. Ends when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    masters: usize,
}

impl Cluster {
    /// Starts `masters` nodes that share the slots evenly, each with `replicas` replicas, all with the module loaded, and
    /// waits until all of them agree. The masters are the first nodes; replica r of master m is node
    /// `masters * (r + 1) + m`.
    ///
    /// # Panics
    /// If they do not agree in time; with what the last of them said.
    pub fn start(masters: usize, replicas: usize) -> Cluster {
        Cluster::start_nodes(masters, replicas, Server::builder)
    }

    /// As [`Cluster::start`], of nodes without the module.
    ///
    /// # Panics
    /// As there.
    pub fn start_without_module(masters: usize, replicas: usize) -> Cluster {
        Cluster::start_nodes(masters, replicas, || Server::builder().without_module())
    }

    fn start_nodes(masters: usize, replicas: usize, builder: fn() -> Builder) -> Cluster {
        let nodes: Vec<Server> = (0..masters * (1 + replicas))
            .map(|_| {
                let builder = builder().tcp().config("cluster-enabled", "yes");
                builder
                    .config("cluster-node-timeout", "1000")
                    .config("cluster-replica-validity-factor", "0")
                    .start()
            })
            .collect();
        let cluster = Cluster { nodes, masters };
        cluster.join();
        cluster
    }

    fn join(&self) {
        let mut connections: Vec<_> = self.nodes.iter().map(Server::connection).collect();
        for (index, connection) in connections.iter_mut().enumerate() {
            // Equal epochs would make two masters argue first.
            let _: String = connection.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            if index < self.masters {
                let (first, end) = (index * SLOTS / self.masters, (index + 1) * SLOTS / self.masters);
                let slots: Vec<String> = (first..end).map(|slot| slot.to_string()).collect();
                let _: String = connection.ask(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            }
        }
        for node in &self.nodes[1..] {
            let _: String = connections[0].ask(&format!("CLUSTER MEET 127.0.0.1 {}", node.port()));
        }
        let ids: Vec<String> =
            connections.iter_mut().map(|connection| connection.ask("CLUSTER MYID")).collect();
        for (index, connection) in connections.iter_mut().enumerate().skip(self.masters) {
            let master = &ids[index % self.masters];
            wait::until(wait::PATIENCE, "a replica to know its master", || {
                connection
                    .try_ask::<String>(&format!("CLUSTER REPLICATE {master}"))
                    .map_err(|error| error.to_string())
            });
        }
        self.await_agreement();
    }

    /// Waits until every node says that the cluster is well and knows all others, and every replica is linked.
    pub fn await_agreement(&self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut connection = node.connection();
            wait::until(wait::PATIENCE, "all nodes to agree", || {
                let info: String = connection.try_ask("CLUSTER INFO").map_err(|error| error.to_string())?;
                let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
                let size = format!("cluster_size:{}\r", self.masters);
                if !(info.contains("cluster_state:ok") && info.contains(&known) && info.contains(&size)) {
                    return Err(format!("node {index}: {info}"));
                }
                let nodes: String = connection.try_ask("CLUSTER NODES").map_err(|error| error.to_string())?;
                let replicas =
                    nodes.lines().filter(|line| line.contains("slave") && !line.contains("fail")).count();
                if replicas != self.nodes.len() - self.masters {
                    return Err(format!("node {index} knows {replicas} replicas: {nodes}"));
                }
                let link = node.info("replication", "master_link_status");
                if link.is_empty() || link == "up" {
                    Ok(())
                } else {
                    Err(format!("node {index}: link is {link}"))
                }
            });
        }
    }

    /// All nodes, the masters first.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// A node to stop or start; see [`Cluster::start`] for the order.
    pub fn node_mut(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The slot of a key, as the servers compute it.
    pub fn slot_of(&self, key: &str) -> u16 {
        self.nodes[0].connection().ask(&format!("CLUSTER KEYSLOT {key}"))
    }

    /// The node that was given `slot` at the start.
    pub fn master_of_slot(&self, slot: u16) -> &Server {
        let is_owner = |index: &usize| usize::from(slot) < (index + 1) * SLOTS / self.masters;
        let index = (0..self.masters).find(is_owner).expect("a slot is below 16384");
        &self.nodes[index]
    }

    /// Addresses of all nodes, for a client.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("redis://127.0.0.1:{}", node.port())).collect()
    }

    /// A cluster client.
    pub fn client(&self) -> ClusterClient {
        ClusterClientBuilder::new(self.urls()).build().expect("the addresses are well-formed")
    }
}
