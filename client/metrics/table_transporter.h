/* client/metrics/table_transporter.h - transporters' metrics: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_TRANSPORTER_H
#define SL_CLIENT_METRICS_TABLE_TRANSPORTER_H

/* clang-format off */
/* What transporters count: reads from other nodes, hand-overs, the directory, rails. */
#define METRICS_TRANSPORTER(X) \
    X(TRANSPORTER, "fetches", COUNTER, ONE, "sluice_fetches_total", "", \
      "Requests to read keys from other nodes.") \
    X(TRANSPORTER, "keys_asked", COUNTER, ONE, "sluice_fetch_keys_asked_total", "", \
      "Keys that other nodes were asked for.") \
    X(TRANSPORTER, "keys_found", COUNTER, ONE, "sluice_fetch_keys_total", "result=found", \
      "Keys that were sought at other nodes: found or missing.") \
    X(TRANSPORTER, "keys_missing", COUNTER, ONE, "sluice_fetch_keys_total", "result=missing", \
      "") \
    X(TRANSPORTER, "values_read", COUNTER, ONE, "sluice_fetch_values_total", "", \
      "Values that were read from other nodes.") \
    X(TRANSPORTER, "bytes_read", COUNTER, BYTES, "sluice_fetch_bytes_total", "", \
      "Bytes that were read from other nodes.") \
    X(TRANSPORTER, "trips", COUNTER, ONE, "sluice_fetch_trips_total", "", \
      "Rounds with another node: values are pinned there, read, and let go.") \
    X(TRANSPORTER, "lookups_unanswered", COUNTER, ONE, "sluice_fetch_lookups_unanswered_total", "", \
      "Questions where keys are that got no answer.") \
    X(TRANSPORTER, "seeks", COUNTER, ONE, "sluice_seeks_total", "", \
      "Requests which keys other nodes hold.") \
    X(TRANSPORTER, "keys_sought", COUNTER, ONE, "sluice_seek_keys_total", "", \
      "Keys of requests which keys other nodes hold.") \
    X(TRANSPORTER, "peers_alive", GAUGE, ONE, "sluice_peers_alive", "", \
      "Other nodes that answer.") \
    X(TRANSPORTER, "peer_failures", COUNTER, ONE, "sluice_peer_failures_total", "reason=failed", \
      "Failures of exchanges with other nodes.") \
    X(TRANSPORTER, "peer_timeouts", COUNTER, ONE, "sluice_peer_failures_total", "reason=timeout", \
      "") \
    X(TRANSPORTER, "frames_refused", COUNTER, ONE, "sluice_peer_frames_refused_total", "", \
      "Messages of other nodes that were refused.") \
    X(TRANSPORTER, "digests_bad", COUNTER, ONE, "sluice_fetch_digests_bad_total", "", \
      "Values of other nodes whose bytes did not fit their digest.") \
    X(TRANSPORTER, "pins_taken", COUNTER, ONE, "sluice_served_pins_total", "", \
      "Values that were pinned for other nodes.") \
    X(TRANSPORTER, "pins_expired", COUNTER, ONE, "sluice_served_pins_expired_total", "", \
      "Pins of other nodes that ended because their time was over.") \
    X(TRANSPORTER, "names_twice", GAUGE, ONE, "sluice_names_twice", "", \
      "Names of nodes that two nodes have now.") \
    X(TRANSPORTER, "pin_sets_open", GAUGE, ONE, "sluice_served_pin_sets", "", \
      "Sets of values that are pinned for other nodes now.") \
    X(TRANSPORTER, "values_served", COUNTER, ONE, "sluice_served_values_total", "", \
      "Values that other nodes were given.") \
    X(TRANSPORTER, "values_promoted", COUNTER, ONE, "sluice_served_promoted_total", "", \
      "Values that were read from a disk because another node asked for them.") \
    X(TRANSPORTER, "fences", COUNTER, ONE, "sluice_transporter_fences_total", "", \
      "Orders to stop moving bytes that were obeyed.") \
    X(TRANSPORTER, "pulls", COUNTER, ONE, "sluice_pulls_total", "", \
      "Requests to have values written straight into an engine's memory.") \
    X(TRANSPORTER, "pulls_refused", COUNTER, ONE, "sluice_pulls_refused_total", "", \
      "Such requests that were refused.") \
    X(TRANSPORTER, "pulls_cancelled", COUNTER, ONE, "sluice_pulls_cancelled_total", "", \
      "Such requests that were cancelled.") \
    X(TRANSPORTER, "pulled_values", COUNTER, ONE, "sluice_pulled_values_total", "", \
      "Values that came straight into an engine's memory.") \
    X(TRANSPORTER, "pulled_bytes", COUNTER, BYTES, "sluice_pulled_bytes_total", "", \
      "Bytes that came straight into an engine's memory.") \
    X(TRANSPORTER, "pull_copied_bytes", COUNTER, BYTES, "sluice_pull_copied_bytes_total", "", \
      "Bytes of pulls that were copied once more on this node.") \
    X(TRANSPORTER, "pull_again_bytes", COUNTER, BYTES, "sluice_pull_again_bytes_total", "", \
      "Bytes of pulls that were read more than once.") \
    X(TRANSPORTER, "tickets_open", GAUGE, ONE, "sluice_tickets_open", "", \
      "Tickets by which other nodes may write here now.") \
    X(TRANSPORTER, "tickets_expired", COUNTER, ONE, "sluice_tickets_ended_total", "reason=expired", \
      "Tickets that ended unused, by the reason.") \
    X(TRANSPORTER, "tickets_fenced", COUNTER, ONE, "sluice_tickets_ended_total", "reason=fenced", \
      "") \
    X(TRANSPORTER, "tickets_refused", COUNTER, ONE, "sluice_tickets_refused_total", "", \
      "Tickets that were not opened.") \
    X(TRANSPORTER, "pool_tickets", COUNTER, ONE, "sluice_pool_tickets_total", "", \
      "Tickets for an engine's own memory.") \
    X(TRANSPORTER, "pushes", COUNTER, ONE, "sluice_pushes_total", "", \
      "Hand-overs that were pushed to another node.") \
    X(TRANSPORTER, "pushes_failed", COUNTER, ONE, "sluice_pushes_failed_total", "", \
      "Pushes that failed; the hand-over went on through storage.") \
    X(TRANSPORTER, "pushed_bytes", COUNTER, BYTES, "sluice_pushed_bytes_total", "", \
      "Bytes that were pushed to other nodes.") \
    X(TRANSPORTER, "pushed_pool_bytes", COUNTER, BYTES, "sluice_pushed_pool_bytes_total", "", \
      "Bytes that were pushed straight out of an engine's memory.") \
    X(TRANSPORTER, "arrivals", COUNTER, ONE, "sluice_push_arrivals_total", "", \
      "Values that other nodes pushed here.") \
    X(TRANSPORTER, "arrivals_bad", COUNTER, ONE, "sluice_push_arrivals_bad_total", "", \
      "Values that other nodes pushed here whose bytes did not fit their digest.") \
    X(TRANSPORTER, "arrived_bytes", COUNTER, BYTES, "sluice_push_arrived_bytes_total", "", \
      "Bytes that other nodes pushed here.") \
    X(TRANSPORTER, "arrived_pool_bytes", COUNTER, BYTES, "sluice_push_arrived_pool_bytes_total", "", \
      "Bytes that other nodes pushed straight into an engine's memory.") \
    X(TRANSPORTER, "copied_bytes", COUNTER, BYTES, "sluice_push_copied_bytes_total", "", \
      "Bytes of pushes that were copied once more on this node.") \
    X(TRANSPORTER, "push_ns", HISTOGRAM, NS, "sluice_push_duration_seconds", "", \
      "Time that a push took.") \
    X(TRANSPORTER, "pool_engines", GAUGE, ONE, "sluice_fabric_engines", "", \
      "Engines whose memory other nodes can read or write without a copy.") \
    X(TRANSPORTER, "pool_memories", GAUGE, ONE, "sluice_fabric_memories", "", \
      "Pieces of engines' memory that are registered with the fabric.") \
    X(TRANSPORTER, "pool_bytes", GAUGE, BYTES, "sluice_fabric_memory_bytes", "", \
      "Memory of engines that is registered with the fabric.") \
    X(TRANSPORTER, "pool_device_bytes", GAUGE, BYTES, "sluice_fabric_device_memory_bytes", "", \
      "Device memory of engines that is registered with the fabric.") \
    X(TRANSPORTER, "pool_device_out_fabric_bytes", GAUGE, BYTES, "sluice_fabric_device_memory_left_out_bytes", "reason=fabric", \
      "Device memory that is not registered with the fabric: the fabric, the swapper or the NIC cannot.") \
    X(TRANSPORTER, "pool_device_out_swapper_bytes", GAUGE, BYTES, "sluice_fabric_device_memory_left_out_bytes", "reason=swapper", \
      "") \
    X(TRANSPORTER, "pool_device_out_nic_bytes", GAUGE, BYTES, "sluice_fabric_device_memory_left_out_bytes", "reason=nic", \
      "") \
    X(TRANSPORTER, "pools_refused", COUNTER, ONE, "sluice_fabric_pools_refused_total", "", \
      "Pools of engines that could not be registered with the fabric.") \
    X(TRANSPORTER, "regions_registered", GAUGE, ONE, "sluice_fabric_regions", "", \
      "Memory regions that are registered with NICs.") \
    X(TRANSPORTER, "region_plans", COUNTER, ONE, "sluice_fabric_region_plans_total", "", \
      "Plans of which memory is registered as which regions.") \
    X(TRANSPORTER, "regions_planned", GAUGE, ONE, "sluice_fabric_regions_planned", "", \
      "Regions of the newest plan.") \
    X(TRANSPORTER, "directory_up", GAUGE, ONE, "sluice_directory_up", "", \
      "1 while the directory's server answers, else 0.") \
    X(TRANSPORTER, "directory_member_count", GAUGE, ONE, "sluice_directory_members", "", \
      "Nodes that the directory names.") \
    X(TRANSPORTER, "directory_key_count", GAUGE, ONE, "sluice_directory_keys", "", \
      "Keys that this node has told the directory of.") \
    X(TRANSPORTER, "directory_published_ns", GAUGE, SINCE, "sluice_directory_lag_seconds", "", \
      "How old what the directory knows of this node is; missing while it may not know all.") \
    X(TRANSPORTER, "directory_published_count", COUNTER, ONE, "sluice_directory_published_total", "", \
      "Publications that the directory's server has answered.") \
    X(TRANSPORTER, "directory_withdrawn_count", COUNTER, ONE, "sluice_directory_withdrawn_total", "", \
      "Withdrawals that the directory's server has answered.") \
    X(TRANSPORTER, "directory_waiting_count", GAUGE, ONE, "sluice_directory_waiting", "", \
      "Publications and withdrawals that wait for the directory's server.") \
    X(TRANSPORTER, "directory_refused_count", COUNTER, ONE, "sluice_directory_refused_total", "", \
      "Commands that the directory's server answered with an error.") \
    X(TRANSPORTER, "directory_lost_count", COUNTER, ONE, "sluice_directory_links_lost_total", "", \
      "Times that the link to the directory's server was lost.") \
    X(TRANSPORTER, "directory_lookup_count", COUNTER, ONE, "sluice_directory_lookups_total", "", \
      "Look-ups in the directory.") \
    X(TRANSPORTER, "directory_lookup_timeout_count", COUNTER, ONE, "sluice_directory_lookup_timeouts_total", "", \
      "Look-ups in the directory that were not answered in time.") \
    X(TRANSPORTER, "directory_stale_holder_count", COUNTER, ONE, "sluice_directory_stale_holders_total", "", \
      "Nodes named by the directory that are gone, or of a former life.") \
    X(TRANSPORTER, "directory_bad_reply_count", COUNTER, ONE, "sluice_directory_bad_replies_total", "", \
      "Links to the directory's server that were ended for what came.") \
    X(TRANSPORTER, "directory_walk_count", COUNTER, ONE, "sluice_directory_walks_total", "", \
      "Times that the whole index was compared with what the directory was told.") \
    X(TRANSPORTER, "directory_walk_ns", GAUGE, NS, "sluice_directory_walk_seconds", "", \
      "Time that the last such comparison took.") \
    X(TRANSPORTER, "read_bytes", COUNTER, BYTES, "sluice_rail_bytes_total", "direction=read", \
      "Bytes that a rail of its own process moved: read and written by it, and served to and taken from others.") \
    X(TRANSPORTER, "written_bytes", COUNTER, BYTES, "sluice_rail_bytes_total", "direction=written", \
      "") \
    X(TRANSPORTER, "served_bytes", COUNTER, BYTES, "sluice_rail_bytes_total", "direction=served", \
      "") \
    X(TRANSPORTER, "taken_bytes", COUNTER, BYTES, "sluice_rail_bytes_total", "direction=taken", \
      "") \
    X(TRANSPORTER, "transfers_out", GAUGE, ONE, "sluice_rail_transfers", "", \
      "Transfers of the rail that are under way.") \
    X(TRANSPORTER, "links_up", GAUGE, ONE, "sluice_rail_links", "", \
      "Links of the rail to other nodes.") \
    X(TRANSPORTER, "links_lost", COUNTER, ONE, "sluice_rail_links_lost_total", "", \
      "Links of the rail that were lost.") \
    X(TRANSPORTER, "refused", COUNTER, ONE, "sluice_rail_refused_total", "", \
      "Requests that the rail refused.") \
    X(TRANSPORTER, "rail_lives", COUNTER, ONE, "sluice_rail_lives_total", "", \
      "Times that the rail was set up anew.")

/* clang-format on */

#endif
