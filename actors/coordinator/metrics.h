/* actors/coordinator/metrics.h - the coordinator's counters, and their names in its page. */
#ifndef SL_COORDINATOR_METRICS_H
#define SL_COORDINATOR_METRICS_H

#include "runtime/base/sl_metrics.h"

#define CO_METRICS                                                    \
    CO_METRIC(store_count, "stores")                                  \
    CO_METRIC(load_count, "loads")                                    \
    CO_METRIC(op_failed_count, "ops_failed")                          \
    CO_METRIC(op_timeout_count, "ops_timed_out")                      \
    CO_METRIC(op_cancelled_count, "ops_cancelled")                    \
    CO_METRIC(op_refused_count, "ops_refused")                        \
    CO_METRIC(repeated_count, "ops_repeated")                         \
    CO_METRIC(op_active_count, "ops_active")                          \
    CO_METRIC(late_reply_count, "late_replies")                       \
    CO_METRIC(zombie_count, "ops_ended_unfenced")                     \
    CO_METRIC(fence_count, "fences")                                  \
    CO_METRIC(killed_count, "swappers_killed")                        \
    CO_METRIC(settled_count, "copies_settled")                        \
    CO_METRIC(block_stored_count, "blocks_stored")                    \
    CO_METRIC(block_existed_count, "blocks_existed")                  \
    CO_METRIC(block_refused_count, "blocks_not_stored")               \
    CO_METRIC(block_from_memory_count, "blocks_from_memory")          \
    CO_METRIC(block_from_disk_count, "blocks_from_disk")              \
    CO_METRIC(block_from_remote_count, "blocks_from_remote")          \
    CO_METRIC(block_missed_count, "blocks_missed")                    \
    CO_METRIC(block_failed_count, "blocks_failed")                    \
    CO_METRIC(block_seen_count, "blocks_seen")                        \
    CO_METRIC(stored_bytes, "stored_bytes")                           \
    CO_METRIC(loaded_bytes, "loaded_bytes")                           \
    CO_METRIC(promote_count, "parts_promoted")                        \
    CO_METRIC(fetch_count, "parts_requested_from_nodes")              \
    CO_METRIC(pull_count, "parts_pulls_requested")                    \
    CO_METRIC(pulled_count, "parts_pulled")                           \
    CO_METRIC(pull_copied_bytes, "pull_copied_bytes")                 \
    CO_METRIC(pull_refused_count, "pulls_refused")                    \
    CO_METRIC(promote_gave_up_count, "promotes_given_up")             \
    CO_METRIC(pin_limit_count, "pin_limits")                          \
    CO_METRIC(length_mismatch_count, "length_mismatches")             \
    CO_METRIC(client_died_count, "engines_died")                      \
    CO_METRIC(handover_active_count, "handovers_active")              \
    CO_METRIC(handover_committed_count, "handovers_committed")        \
    CO_METRIC(handover_consumed_count, "handovers_consumed")          \
    CO_METRIC(handover_aborted_count, "handovers_aborted")            \
    CO_METRIC(handover_recomputed_count, "handovers_recomputed")      \
    CO_METRIC(handover_gone_count, "handovers_gone")                  \
    CO_METRIC(straight_count, "pushes_direct")                        \
    CO_METRIC(straight_refused_count, "pushes_direct_refused")        \
    CO_METRIC(handover_pushed_count, "handovers_pushed")              \
    CO_METRIC(handover_fallback_count, "handovers_fallen_back")       \
    CO_METRIC(handover_released_count, "handovers_released_by_peers") \
    CO_METRIC(word_refused_count, "notifications_refused")            \
    CO_METRIC(release_refused_count, "releases_refused")              \
    CO_METRIC(layered_count, "ops_by_layers")                         \
    CO_METRIC(layers_copied_count, "layers_copied")                   \
    CO_METRIC(not_awaited_count, "blocks_not_waited_for")             \
    CO_METRIC(not_awaited_tokens, "tokens_not_waited_for")            \
    CO_METRIC(not_awaited_us, "waiting_saved_us")                     \
    CO_METRIC(soft_missed_count, "soft_deadlines_missed")             \
    CO_METRIC(fetch_spared_count, "fetches_spared")
#define CO_METRIC(field, name) sl_metric field;
struct co_metrics {
    CO_METRICS
    sl_histogram store_ns, load_ns, handover_ns;
};
#undef CO_METRIC

#endif
