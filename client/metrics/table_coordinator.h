/* client/metrics/table_coordinator.h - the coordinator's metrics: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_COORDINATOR_H
#define SL_CLIENT_METRICS_TABLE_COORDINATOR_H

/* clang-format off */
/* What the coordinator counts: stores, loads, hand-overs, sessions. */
#define METRICS_COORDINATOR(X) \
    X(COORDINATOR, "blocks_from_memory", COUNTER, ONE, "sluice_load_blocks_total", "tier=memory", \
      "Blocks that engines' loads asked for, by the tier where they were found; none: they were not loaded.") \
    X(COORDINATOR, "blocks_from_disk", COUNTER, ONE, "sluice_load_blocks_total", "tier=disk", \
      "") \
    X(COORDINATOR, "blocks_from_remote", COUNTER, ONE, "sluice_load_blocks_total", "tier=remote", \
      "") \
    X(COORDINATOR, "blocks_missed", COUNTER, ONE, "sluice_load_blocks_total", "tier=none", \
      "") \
    X(COORDINATOR, "blocks_failed", COUNTER, ONE, "sluice_load_blocks_failed_total", "", \
      "Blocks of loads that were refused, or ended by an error before they came to them.") \
    X(COORDINATOR, "blocks_seen", COUNTER, ONE, "sluice_load_blocks_seen_total", "", \
      "Blocks among those of tier none that were here once: unlimited memory would have had them. Less than 0.5 % of the others are counted, too, and of what left long ago not all.") \
    X(COORDINATOR, "loaded_bytes", COUNTER, BYTES, "sluice_load_bytes_total", "", \
      "Bytes that loads copied to engines.") \
    X(COORDINATOR, "load_ns", HISTOGRAM, NS, "sluice_load_duration_seconds", "", \
      "Time that a load took.") \
    X(COORDINATOR, "blocks_stored", COUNTER, ONE, "sluice_store_blocks_total", "result=stored", \
      "Blocks that engines' stores brought: stored, there already, or not stored.") \
    X(COORDINATOR, "blocks_existed", COUNTER, ONE, "sluice_store_blocks_total", "result=existed", \
      "") \
    X(COORDINATOR, "blocks_not_stored", COUNTER, ONE, "sluice_store_blocks_total", "result=refused", \
      "") \
    X(COORDINATOR, "stored_bytes", COUNTER, BYTES, "sluice_store_bytes_total", "", \
      "Bytes that stores copied from engines.") \
    X(COORDINATOR, "store_ns", HISTOGRAM, NS, "sluice_store_duration_seconds", "", \
      "Time that a store took.") \
    X(COORDINATOR, "stores", COUNTER, ONE, "sluice_ops_total", "op=store", \
      "Stores and loads that began.") \
    X(COORDINATOR, "loads", COUNTER, ONE, "sluice_ops_total", "op=load", \
      "") \
    X(COORDINATOR, "ops_failed", COUNTER, ONE, "sluice_ops_unsuccessful_total", "reason=failed", \
      "Stores, loads and hand-overs that did not end well, by the reason.") \
    X(COORDINATOR, "ops_timed_out", COUNTER, ONE, "sluice_ops_unsuccessful_total", "reason=timeout", \
      "") \
    X(COORDINATOR, "ops_cancelled", COUNTER, ONE, "sluice_ops_unsuccessful_total", "reason=cancelled", \
      "") \
    X(COORDINATOR, "ops_refused", COUNTER, ONE, "sluice_ops_unsuccessful_total", "reason=refused", \
      "") \
    X(COORDINATOR, "ops_repeated", COUNTER, ONE, "sluice_ops_repeated_total", "", \
      "Requests that were sent again while their op was in flight.") \
    X(COORDINATOR, "ops_active", GAUGE, ONE, "sluice_ops_active", "", \
      "Ops in flight.") \
    X(COORDINATOR, "ops_by_layers", COUNTER, ONE, "sluice_ops_by_layers_total", "", \
      "Stores and loads that went layer by layer.") \
    X(COORDINATOR, "layers_copied", COUNTER, ONE, "sluice_layers_copied_total", "", \
      "Layers that were copied one by one.") \
    X(COORDINATOR, "stores_granted_ahead", COUNTER, ONE, "sluice_stores_granted_ahead_total", "", \
      "Stores whose memory had been granted in advance.") \
    X(COORDINATOR, "late_replies", COUNTER, ONE, "sluice_coordinator_late_replies_total", "", \
      "Replies that nobody waited for any more.") \
    X(COORDINATOR, "ops_ended_unfenced", COUNTER, ONE, "sluice_ops_ended_unfenced_total", "", \
      "Ops that were answered before it was certain that their copies had stopped.") \
    X(COORDINATOR, "fences", COUNTER, ONE, "sluice_coordinator_fences_total", "", \
      "Orders to stop copying that were sent to swappers.") \
    X(COORDINATOR, "swappers_killed", COUNTER, ONE, "sluice_swappers_killed_total", "", \
      "Swappers that were killed because they did not stop copying in time.") \
    X(COORDINATOR, "copies_settled", COUNTER, ONE, "sluice_copies_settled_total", "", \
      "Copies without an answer whose end was seen in shared memory.") \
    X(COORDINATOR, "parts_promoted", COUNTER, ONE, "sluice_load_parts_promoted_total", "", \
      "Parts of blocks that loads asked the registrar to read from a disk.") \
    X(COORDINATOR, "promotes_given_up", COUNTER, ONE, "sluice_load_promotes_given_up_total", "", \
      "Loads that stopped waiting for blocks that were evicted again and again.") \
    X(COORDINATOR, "parts_asked_of_nodes", COUNTER, ONE, "sluice_load_parts_asked_of_nodes_total", "", \
      "Parts of blocks that loads asked other nodes for.") \
    X(COORDINATOR, "parts_pulls_asked", COUNTER, ONE, "sluice_load_pull_parts_total", "result=asked", \
      "Parts that other nodes were asked to write straight into an engine's memory, and those that came so.") \
    X(COORDINATOR, "parts_pulled", COUNTER, ONE, "sluice_load_pull_parts_total", "result=pulled", \
      "") \
    X(COORDINATOR, "pull_copied_bytes", COUNTER, BYTES, "sluice_load_pull_copied_bytes_total", "", \
      "Bytes of pulls that were copied once more on this node.") \
    X(COORDINATOR, "pulls_refused", COUNTER, ONE, "sluice_load_pulls_refused_total", "", \
      "Pulls that the transporter refused; the load went on through memory.") \
    X(COORDINATOR, "pin_limits", COUNTER, ONE, "sluice_load_pin_limits_total", "", \
      "Times that a load had to wait because too much was pinned.") \
    X(COORDINATOR, "length_mismatches", COUNTER, ONE, "sluice_load_length_mismatches_total", "", \
      "Parts that were left out because their length is not the registered one.") \
    X(COORDINATOR, "engines_died", COUNTER, ONE, "sluice_engines_died_total", "", \
      "Engines whose death the coordinator saw.") \
    X(COORDINATOR, "blocks_not_waited_for", COUNTER, ONE, "sluice_load_unawaited_blocks_total", "", \
      "Blocks on a disk that a load left to be computed, because that is sooner.") \
    X(COORDINATOR, "tokens_not_waited_for", COUNTER, ONE, "sluice_load_unawaited_tokens_total", "", \
      "Tokens of blocks on a disk that a load left to be computed.") \
    X(COORDINATOR, "waiting_saved_us", COUNTER, US, "sluice_load_unawaited_seconds_total", "", \
      "Estimated time that was saved by computing what is on a disk.") \
    X(COORDINATOR, "soft_deadlines_missed", COUNTER, ONE, "sluice_load_soft_deadlines_missed_total", "", \
      "Loads that waited for a disk longer than computing would have taken.") \
    X(COORDINATOR, "fetches_spared", COUNTER, ONE, "sluice_load_fetches_spared_total", "", \
      "Questions to other nodes that were not asked because computing is sooner.") \
    X(COORDINATOR, "handovers_active", GAUGE, ONE, "sluice_handovers_active", "", \
      "Hand-overs that are under way.") \
    X(COORDINATOR, "handovers_committed", COUNTER, ONE, "sluice_handovers_total", "state=committed", \
      "Hand-overs that reached this state.") \
    X(COORDINATOR, "handovers_consumed", COUNTER, ONE, "sluice_handovers_total", "state=consumed", \
      "") \
    X(COORDINATOR, "handovers_aborted", COUNTER, ONE, "sluice_handovers_total", "state=aborted", \
      "") \
    X(COORDINATOR, "handovers_recomputed", COUNTER, ONE, "sluice_handovers_total", "state=recomputed", \
      "") \
    X(COORDINATOR, "handovers_gone", COUNTER, ONE, "sluice_handovers_total", "state=gone", \
      "") \
    X(COORDINATOR, "handovers_pushed", COUNTER, ONE, "sluice_handovers_total", "state=pushed", \
      "") \
    X(COORDINATOR, "handovers_fallen_back", COUNTER, ONE, "sluice_handovers_total", "state=fallen_back", \
      "") \
    X(COORDINATOR, "handovers_released_by_peers", COUNTER, ONE, "sluice_handovers_total", "state=released_by_peer", \
      "") \
    X(COORDINATOR, "pushes_straight", COUNTER, ONE, "sluice_pushes_straight_total", "result=lent", \
      "Pushes into or out of an engine's memory without a copy: begun, or refused.") \
    X(COORDINATOR, "pushes_straight_refused", COUNTER, ONE, "sluice_pushes_straight_total", "result=refused", \
      "") \
    X(COORDINATOR, "words_refused", COUNTER, ONE, "sluice_handover_words_refused_total", "", \
      "Words of other coordinators about hand-overs that were refused.") \
    X(COORDINATOR, "releases_refused", COUNTER, ONE, "sluice_handover_releases_refused_total", "", \
      "Releases of hand-overs by other nodes that were refused.") \
    X(COORDINATOR, "handover_ns", HISTOGRAM, NS, "sluice_handover_duration_seconds", "", \
      "Time that a hand-over took.") \
    X(COORDINATOR, "sessions", GAUGE, ONE, "sluice_sessions", "", \
      "Sessions that are remembered.") \
    X(COORDINATOR, "session_turns", COUNTER, ONE, "sluice_session_turns_total", "", \
      "Loads that named a session.") \
    X(COORDINATOR, "session_pauses_told", COUNTER, ONE, "sluice_session_pauses_told_total", "", \
      "Pauses that clients told of.") \
    X(COORDINATOR, "session_prefetches", COUNTER, ONE, "sluice_session_prefetches_total", "result=asked", \
      "Prefetches for a session that is expected back: asked for, and refused.") \
    X(COORDINATOR, "session_prefetches_refused", COUNTER, ONE, "sluice_session_prefetches_total", "result=refused", \
      "") \
    X(COORDINATOR, "session_parts_prefetched", COUNTER, ONE, "sluice_session_prefetched_parts_total", "", \
      "Parts that were read ahead of a session's return.")

/* clang-format on */

#endif
