/* client/metrics/table_registrar.h - the registrar's metrics: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_REGISTRAR_H
#define SL_CLIENT_METRICS_TABLE_REGISTRAR_H

/* clang-format off */
/* What the registrar counts: keys, memory, eviction, claims, write-behind. */
#define METRICS_REGISTRAR(X) \
    X(REGISTRAR, "used_bytes", GAUGE, BYTES, "sluice_memory_used_bytes", "", \
      "Memory for values that is taken.") \
    X(REGISTRAR, "usable_bytes", GAUGE, BYTES, "sluice_memory_usable_bytes", "", \
      "Memory for values that is there, taken or free; it grows to the configured size.") \
    X(REGISTRAR, "ceiling_bytes", GAUGE, BYTES, "sluice_memory_ceiling_bytes", "", \
      "The most memory that values may take: the setting, or what clients contribute.") \
    X(REGISTRAR, "given_back_bytes", COUNTER, BYTES, "sluice_memory_given_back_bytes_total", "", \
      "Memory for values that went back to the system when less was contributed.") \
    X(REGISTRAR, "huge_pages", GAUGE, ONE, "sluice_memory_huge_pages", "", \
      "1 when the memory for values has huge pages, else 0.") \
    X(REGISTRAR, "object_count", GAUGE, ONE, "sluice_index_keys", "", \
      "Keys in the index, in memory or on a disk.") \
    X(REGISTRAR, "block_count", GAUGE, ONE, "sluice_index_blocks", "", \
      "Blocks of engines in the index.") \
    X(REGISTRAR, "index_bytes", GAUGE, BYTES, "sluice_index_mapped_bytes", "", \
      "Shared memory of the index.") \
    X(REGISTRAR, "reserve_count", COUNTER, ONE, "sluice_reserve_keys_total", "result=granted", \
      "Keys that writers asked space for: granted, written by another just now, or refused.") \
    X(REGISTRAR, "busy_count", COUNTER, ONE, "sluice_reserve_keys_total", "result=busy", \
      "") \
    X(REGISTRAR, "refused_count", COUNTER, ONE, "sluice_reserve_keys_total", "result=refused", \
      "") \
    X(REGISTRAR, "preempted_count", COUNTER, ONE, "sluice_reserve_preempted_total", "", \
      "Claims whose writer lost the key to another writer.") \
    X(REGISTRAR, "parked_count", GAUGE, ONE, "sluice_reserve_waiting", "", \
      "Requests for space that wait until some is free.") \
    X(REGISTRAR, "commit_count", COUNTER, ONE, "sluice_committed_keys_total", "", \
      "Keys that became visible.") \
    X(REGISTRAR, "stale_count", COUNTER, ONE, "sluice_commit_stale_total", "", \
      "Keys whose commit came too late: the claim had ended.") \
    X(REGISTRAR, "abort_count", COUNTER, ONE, "sluice_aborted_keys_total", "", \
      "Claims that their writers gave back.") \
    X(REGISTRAR, "replaced_count", COUNTER, ONE, "sluice_replaced_keys_total", "", \
      "Values that a newer value of the same key replaced.") \
    X(REGISTRAR, "ahead_count", COUNTER, ONE, "sluice_ahead_grants_total", "", \
      "Extents that were granted to writers in advance.") \
    X(REGISTRAR, "ahead_bytes", GAUGE, BYTES, "sluice_ahead_bytes", "", \
      "Memory that is granted to writers in advance.") \
    X(REGISTRAR, "held_count", GAUGE, ONE, "sluice_held_keys", "", \
      "Blocks that are kept in memory for a hand-over.") \
    X(REGISTRAR, "held_bytes", GAUGE, BYTES, "sluice_held_bytes", "", \
      "Memory of blocks that are kept for a hand-over.") \
    X(REGISTRAR, "hold_lapsed_count", COUNTER, ONE, "sluice_holds_lapsed_total", "", \
      "Holds that ended because their time was over.") \
    X(REGISTRAR, "claim_count", GAUGE, ONE, "sluice_claims", "", \
      "Keys that are being written now.") \
    X(REGISTRAR, "quarantined_bytes", GAUGE, BYTES, "sluice_quarantined_bytes", "", \
      "Memory that nobody may have until its former writer has stopped for certain.") \
    X(REGISTRAR, "fence_count", COUNTER, ONE, "sluice_fences_total", "", \
      "Orders to stop writing that were sent.") \
    X(REGISTRAR, "killed_count", COUNTER, ONE, "sluice_processes_killed_total", "", \
      "Processes that were killed because they did not stop writing in time.") \
    X(REGISTRAR, "expired_count", COUNTER, ONE, "sluice_claims_expired_total", "", \
      "Claims that ended because their time was over.") \
    X(REGISTRAR, "retired_count", GAUGE, ONE, "sluice_retired_extents", "", \
      "Extents that are free as soon as nobody reads them any more.") \
    X(REGISTRAR, "ghost_count", GAUGE, ONE, "sluice_ghosts", "", \
      "Keys that are gone and remembered, with the reason.") \
    X(REGISTRAR, "hard_pinned_count", GAUGE, ONE, "sluice_pinned_keys", "pin=hard", \
      "Keys that eviction leaves alone (hard), or takes last (soft).") \
    X(REGISTRAR, "soft_pinned_count", GAUGE, ONE, "sluice_pinned_keys", "pin=soft", \
      "") \
    X(REGISTRAR, "leased_count", GAUGE, ONE, "sluice_leased_keys", "", \
      "Keys that are not evicted because a lease on them runs.") \
    X(REGISTRAR, "dropped_count", COUNTER, ONE, "sluice_dropped_units_total", "", \
      "Objects and blocks that left the index.") \
    X(REGISTRAR, "evict_age_ns", HISTOGRAM, AGE, "sluice_evict_age_seconds", "", \
      "How long ago units were wanted last when they left memory, where the policy knows; the longer, the less it hurts.") \
    X(REGISTRAR, "evicted_count", COUNTER, ONE, "sluice_evicted_units_total", "", \
      "Objects and blocks that were evicted from memory.") \
    X(REGISTRAR, "evicted_bytes", COUNTER, BYTES, "sluice_evicted_bytes_total", "", \
      "Memory that eviction freed.") \
    X(REGISTRAR, "evict_skipped_count", COUNTER, ONE, "sluice_evict_skipped_total", "", \
      "Objects and blocks that eviction passed over because they were in use or leased.") \
    X(REGISTRAR, "evict_attempt_count", COUNTER, ONE, "sluice_evict_attempts_total", "", \
      "Times that eviction was tried.") \
    X(REGISTRAR, "evict_success_count", COUNTER, ONE, "sluice_evict_successes_total", "", \
      "Times that eviction freed something.") \
    X(REGISTRAR, "access_lost_count", COUNTER, ONE, "sluice_accesses_lost_total", "", \
      "Notes of reads that eviction's order did not get, because a reader's ring was full.") \
    X(REGISTRAR, "prefetch_used_count", COUNTER, ONE, "sluice_prefetch_keys_total", "result=used", \
      "Keys that were read from a disk ahead of use, and then were used, or left memory unused.") \
    X(REGISTRAR, "prefetch_lost_count", COUNTER, ONE, "sluice_prefetch_keys_total", "result=unused", \
      "") \
    X(REGISTRAR, "promoted_count", COUNTER, ONE, "sluice_promoted_keys_total", "", \
      "Keys that were read from a disk into memory because somebody asked for them.") \
    X(REGISTRAR, "promoted_bytes", COUNTER, BYTES, "sluice_promoted_bytes_total", "", \
      "Bytes that were read from a disk into memory because somebody asked for them.") \
    X(REGISTRAR, "promote_failed_count", COUNTER, ONE, "sluice_promote_failures_total", "", \
      "Keys that could not be read from a disk.") \
    X(REGISTRAR, "prefetched_count", COUNTER, ONE, "sluice_prefetched_keys_total", "", \
      "Keys that were read from a disk ahead of use.") \
    X(REGISTRAR, "prefetched_bytes", COUNTER, BYTES, "sluice_prefetched_bytes_total", "", \
      "Bytes that were read from a disk ahead of use.") \
    X(REGISTRAR, "prefetch_refused_count", COUNTER, ONE, "sluice_prefetch_refused_total", "", \
      "Keys that were not read ahead of use for lack of room.") \
    X(REGISTRAR, "rewritten_from_disk_count", COUNTER, ONE, "sluice_disk_kept_values_total", "", \
      "Values that were read from a segment that leaves a disk, to be written anew.") \
    X(REGISTRAR, "rewritten_count", COUNTER, ONE, "sluice_disk_rewritten_values_total", "", \
      "Values in memory that are written anew because their segment leaves a disk.") \
    X(REGISTRAR, "disk_segment_count", GAUGE, ONE, "sluice_disk_segments", "", \
      "Segments of all disks that the registrar knows.") \
    X(REGISTRAR, "disk_object_count", GAUGE, ONE, "sluice_disk_keys", "", \
      "Keys that have a value on a disk.") \
    X(REGISTRAR, "disk_ready", GAUGE, ONE, "sluice_disks_ready", "", \
      "Disks that take reads and writes now.") \
    X(REGISTRAR, "corrupt_count", COUNTER, ONE, "sluice_corrupt_values_total", "", \
      "Values whose bytes did not fit their digest; they were dropped.") \
    X(REGISTRAR, "write_behind_pending_count", GAUGE, ONE, "sluice_write_behind_keys", "", \
      "Objects and blocks that are to be written to a disk and are not there yet.") \
    X(REGISTRAR, "write_behind_lag_ms", GAUGE, MS, "sluice_write_behind_lag_seconds", "", \
      "How long the oldest value that is to go to a disk has waited, in whole seconds; 0: none waits.") \
    X(REGISTRAR, "written_count", COUNTER, ONE, "sluice_write_behind_written_total", "", \
      "Keys that were written to a disk.") \
    X(REGISTRAR, "written_bytes", COUNTER, BYTES, "sluice_write_behind_bytes_total", "", \
      "Bytes of values that were written to a disk.") \
    X(REGISTRAR, "write_failed_count", COUNTER, ONE, "sluice_write_behind_failures_total", "", \
      "Keys that could not be written to a disk.") \
    X(REGISTRAR, "not_written_count", COUNTER, ONE, "sluice_disk_not_admitted_total", "", \
      "Keys that were not worth a write to a disk when they came.") \
    X(REGISTRAR, "not_written_bytes", COUNTER, BYTES, "sluice_disk_not_admitted_bytes_total", "", \
      "Bytes that were not worth a write to a disk when they came.") \
    X(REGISTRAR, "written_later_count", COUNTER, ONE, "sluice_disk_admitted_later_total", "", \
      "Keys that were not worth a write at first, and are to be written after all.") \
    X(REGISTRAR, "over_budget_count", COUNTER, ONE, "sluice_disk_over_budget_total", "", \
      "Objects and blocks that the budget of bytes written a day kept from a disk.") \
    X(REGISTRAR, "forget_pending_count", GAUGE, ONE, "sluice_disk_removals", "", \
      "Removals that are on their way to a disk.") \
    X(REGISTRAR, "forget_skipped_count", COUNTER, ONE, "sluice_disk_removals_skipped_total", "", \
      "Removals that were not told to a disk for lack of room; the value may come back when its tierer starts again.") \
    X(REGISTRAR, "remove_leased_count", COUNTER, ONE, "sluice_removals_leased_total", "", \
      "Removals that were put off or refused because of a lease.") \
    X(REGISTRAR, "pool_count", GAUGE, ONE, "sluice_device_pools", "", \
      "Pools of device memory.") \
    X(REGISTRAR, "pool_bytes", GAUGE, BYTES, "sluice_device_pool_bytes", "", \
      "Device memory of pools.") \
    X(REGISTRAR, "engine_count", GAUGE, ONE, "sluice_engines", "", \
      "Registrations of engines.") \
    X(REGISTRAR, "peer_count", GAUGE, ONE, "sluice_processes", "", \
      "Processes that the registrar knows: actors and clients.") \
    X(REGISTRAR, "died_count", COUNTER, ONE, "sluice_process_deaths_total", "", \
      "Processes, actors and clients, whose death the registrar saw.") \
    X(REGISTRAR, "contribution_count", GAUGE, ONE, "sluice_contributions", "", \
      "Contributions of memory that clients have made.") \
    X(REGISTRAR, "contributed_bytes", GAUGE, BYTES, "sluice_contributed_bytes", "", \
      "Memory that clients have contributed.") \
    X(REGISTRAR, "contributed_used_bytes", GAUGE, BYTES, "sluice_contributed_used_bytes", "", \
      "Memory that is taken of what may be used with the contributions that there are.") \
    X(REGISTRAR, "recorded_count", COUNTER, ONE, "sluice_recorded_events_total", "result=recorded", \
      "Events of the recording: written to its file, or lost for lack of room.") \
    X(REGISTRAR, "record_lost_count", COUNTER, ONE, "sluice_recorded_events_total", "result=lost", \
      "") \
    X(REGISTRAR, "record_bytes", GAUGE, BYTES, "sluice_recording_bytes", "", \
      "Length of the recording.")

/* clang-format on */

#endif
