//! Three nodes: keys are routed by argument 1.

use harness::redis::cmd;
use harness::{Ask, Cluster};

/// redis-cell#30
#[test]
fn the_wrong_node_answers_moved_and_a_client_finds_the_right_one() {
    let cluster = Cluster::start(3, 0);
    let mut client = cluster.client().get_connection().unwrap();
    for tenant in 0..20 {
        let key = format!("{{tenant{tenant}}}:rl:_tenant:0");
        let slot = cluster.slot_of(&key);
        let owner = cluster.master_of_slot(slot);
        for node in cluster.nodes() {
            let line = format!("RL.TAKE {key} 5 1/h");
            if node.port() == owner.port() {
                assert_eq!(node.connection().ask::<[i64; 4]>(&line)[..2], [1, 4]);
            } else {
                let moved = node.connection().ask_error(&line);
                assert_eq!(moved, format!("MOVED {slot} 127.0.0.1:{}", owner.port()));
            }
        }
        let reply: [i64; 4] = cmd("RL.TAKE").arg(&[&key, "5", "1/h"]).query(&mut client).unwrap();
        assert_eq!(reply[..2], [1, 3], "the client's call must be the second on {key}");
    }
}
