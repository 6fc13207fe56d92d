/* client/metrics/table_workers.h - metrics of tierers, swappers and the keyer: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_WORKERS_H
#define SL_CLIENT_METRICS_TABLE_WORKERS_H

/* clang-format off */
/* What tierers count: values, segments and bytes of a disk. */
#define METRICS_TIERER(X) \
    X(TIERER, "bytes_written", COUNTER, BYTES, "sluice_tier_written_bytes_total", "", \
      "Bytes that were written to the disk.") \
    X(TIERER, "bytes_read", COUNTER, BYTES, "sluice_tier_read_bytes_total", "", \
      "Bytes that were read from the disk.") \
    X(TIERER, "values_written", COUNTER, ONE, "sluice_tier_written_values_total", "", \
      "Values that were written to the disk.") \
    X(TIERER, "values_read", COUNTER, ONE, "sluice_tier_read_values_total", "", \
      "Values that were read from the disk.") \
    X(TIERER, "write_ns", HISTOGRAM, NS, "sluice_tier_write_duration_seconds", "", \
      "Time that a write took.") \
    X(TIERER, "read_ns", HISTOGRAM, NS, "sluice_tier_read_duration_seconds", "", \
      "Time that a read took.") \
    X(TIERER, "sync_ns", HISTOGRAM, NS, "sluice_tier_sync_duration_seconds", "", \
      "Time that a sync took.") \
    X(TIERER, "syncs", COUNTER, ONE, "sluice_tier_syncs_total", "", \
      "Syncs of the disk.") \
    X(TIERER, "tombstones_written", COUNTER, ONE, "sluice_tier_tombstones_total", "", \
      "Removals that were written to the disk.") \
    X(TIERER, "corrupt_count", COUNTER, ONE, "sluice_tier_corrupt_values_total", "", \
      "Values on the disk whose bytes did not fit their digest.") \
    X(TIERER, "io_error_count", COUNTER, ONE, "sluice_tier_io_errors_total", "", \
      "Reads and writes that the disk failed.") \
    X(TIERER, "unreadable_places", COUNTER, ONE, "sluice_tier_unreadable_places_total", "", \
      "Places of the disk that were given up because they cannot be read.") \
    X(TIERER, "segments", GAUGE, ONE, "sluice_tier_segments", "", \
      "Segments on the disk.") \
    X(TIERER, "sealed_segments", GAUGE, ONE, "sluice_tier_sealed_segments", "", \
      "Segments that are full and sealed.") \
    X(TIERER, "reclaimed_segments", COUNTER, ONE, "sluice_tier_reclaimed_segments_total", "", \
      "Segments that were removed to make room.") \
    X(TIERER, "emptied_segments", GAUGE, ONE, "sluice_tier_emptied_segments", "", \
      "Segments of a time before the disk was emptied, which went when the tierer started.") \
    X(TIERER, "given_up_segments", GAUGE, ONE, "sluice_tier_given_up_segments", "", \
      "Segments that could not be read and went when the tierer started.") \
    X(TIERER, "disk_used_bytes", GAUGE, BYTES, "sluice_tier_used_bytes", "", \
      "Space on the disk that is taken.") \
    X(TIERER, "disk_ceiling_bytes", GAUGE, BYTES, "sluice_tier_ceiling_bytes", "", \
      "The most space that may be taken on the disk.") \
    X(TIERER, "live_values", GAUGE, ONE, "sluice_tier_live_values", "", \
      "Values on the disk that are valid.") \
    X(TIERER, "live_bytes", GAUGE, BYTES, "sluice_tier_live_bytes", "", \
      "Bytes on the disk that are valid.") \
    X(TIERER, "queued_requests", GAUGE, ONE, "sluice_tier_queue", "", \
      "Requests that wait for the disk.") \
    X(TIERER, "read_queue_bytes", GAUGE, BYTES, "sluice_tier_read_queue_bytes", "", \
      "Bytes of reads that were asked for and are not there yet.") \
    X(TIERER, "requests_in_flight", GAUGE, ONE, "sluice_tier_in_flight", "", \
      "Reads and writes that the disk works on.") \
    X(TIERER, "read_busy_ns", COUNTER, NS, "sluice_tier_read_busy_seconds_total", "", \
      "Time with at least one read under way.") \
    X(TIERER, "registered_bytes", GAUGE, BYTES, "sluice_tier_registered_bytes", "", \
      "Memory that is registered with the kernel for direct reads and writes.") \
    X(TIERER, "write_budget_bytes", GAUGE, BYTES, "sluice_tier_write_budget_bytes", "", \
      "Bytes that may be written to the disk a day; 0: without a bound.") \
    X(TIERER, "write_budget_left_bytes", GAUGE, BYTES, "sluice_tier_write_budget_left_bytes", "", \
      "What of the budget is left.") \
    X(TIERER, "written_today_bytes", GAUGE, BYTES, "sluice_tier_written_today_bytes", "", \
      "Bytes that were written to the disk in the present day.") \
    X(TIERER, "written_all_bytes", COUNTER, BYTES, "sluice_tier_written_ever_bytes_total", "", \
      "Bytes that were written to the disk since its directory was made.")

/* What swappers count: copies between memory and devices. */
#define METRICS_SWAPPER(X) \
    X(SWAPPER, "copies", COUNTER, ONE, "sluice_swap_copies_total", "", \
      "Requests to copy.") \
    X(SWAPPER, "copies_refused", COUNTER, ONE, "sluice_swap_copies_refused_total", "", \
      "Requests to copy that were refused.") \
    X(SWAPPER, "copies_repeated", COUNTER, ONE, "sluice_swap_copies_repeated_total", "", \
      "Requests to copy that were sent again.") \
    X(SWAPPER, "copies_queued", GAUGE, ONE, "sluice_swap_queue", "", \
      "Requests to copy that wait.") \
    X(SWAPPER, "parts_out", COUNTER, ONE, "sluice_swap_parts_total", "direction=out", \
      "Parts of blocks that were copied: out of a device, or into it.") \
    X(SWAPPER, "parts_in", COUNTER, ONE, "sluice_swap_parts_total", "direction=in", \
      "") \
    X(SWAPPER, "out_bytes", COUNTER, BYTES, "sluice_swap_bytes_total", "direction=out", \
      "Bytes that were copied: out of a device, or into it.") \
    X(SWAPPER, "in_bytes", COUNTER, BYTES, "sluice_swap_bytes_total", "direction=in", \
      "") \
    X(SWAPPER, "claims_gone", COUNTER, ONE, "sluice_swap_claims_gone_total", "", \
      "Parts that were not copied because their place in memory was given up.") \
    X(SWAPPER, "parts_verified", COUNTER, ONE, "sluice_swap_verified_parts_total", "", \
      "Parts whose digest was checked.") \
    X(SWAPPER, "verified_bytes", COUNTER, BYTES, "sluice_swap_verified_bytes_total", "", \
      "Bytes whose digest was checked.") \
    X(SWAPPER, "parts_looked_at", COUNTER, ONE, "sluice_swap_looked_parts_total", "", \
      "Parts of which the digest alone was taken, on the device.") \
    X(SWAPPER, "looked_at_bytes", COUNTER, BYTES, "sluice_swap_looked_bytes_total", "", \
      "Bytes of which the digest alone was taken, on the device.") \
    X(SWAPPER, "parts_corrupt", COUNTER, ONE, "sluice_swap_corrupt_parts_total", "", \
      "Parts whose bytes did not fit their digest.") \
    X(SWAPPER, "values_damaged", COUNTER, ONE, "sluice_swap_damaged_values_total", "", \
      "Damaged values that the registrar was told of.") \
    X(SWAPPER, "fences", COUNTER, ONE, "sluice_swap_fences_total", "", \
      "Orders to stop copying that were obeyed.") \
    X(SWAPPER, "engines_mapped", GAUGE, ONE, "sluice_swap_engines", "", \
      "Engines whose memory is mapped.") \
    X(SWAPPER, "pools_made", GAUGE, ONE, "sluice_swap_pools", "", \
      "Pools of device memory that the swapper has made.") \
    X(SWAPPER, "pool_bytes", GAUGE, BYTES, "sluice_swap_pool_bytes", "", \
      "Device memory that the swapper has taken for pools.") \
    X(SWAPPER, "memory_exports", COUNTER, ONE, "sluice_swap_memory_exports_total", "", \
      "Times that device memory was handed to the transporter.") \
    X(SWAPPER, "pinned_bytes", GAUGE, BYTES, "sluice_swap_pinned_bytes", "", \
      "Memory of values that is pinned for the device.") \
    X(SWAPPER, "bounced_bytes", COUNTER, BYTES, "sluice_swap_bounced_bytes_total", "", \
      "Bytes that went through memory of the device's own on their way.") \
    X(SWAPPER, "dma_copies", COUNTER, ONE, "sluice_swap_dma_copies_total", "", \
      "Single copies that the device's copy engines were given.") \
    X(SWAPPER, "dma_batches", COUNTER, ONE, "sluice_swap_dma_batches_total", "", \
      "Calls that gave the device's copy engines many pieces.") \
    X(SWAPPER, "kernels", COUNTER, ONE, "sluice_swap_kernels_total", "", \
      "Kernels that were launched for copies.") \
    X(SWAPPER, "drains", COUNTER, ONE, "sluice_swap_drains_total", "", \
      "Times that all copies on their way were waited for.") \
    X(SWAPPER, "engine_computes", GAUGE, ONE, "sluice_swap_engine_computes", "", \
      "1 when another process was seen to compute on the GPU just now, else 0.") \
    X(SWAPPER, "copy_threads", GAUGE, ONE, "sluice_swap_copy_threads", "", \
      "Threads that copy plain memory of processes.")

/* What the keyer counts. */
#define METRICS_KEYER(X) \
    X(KEYER, "key_requests", COUNTER, ONE, "sluice_key_requests_total", "", \
      "Requests for block keys.") \
    X(KEYER, "key_requests_refused", COUNTER, ONE, "sluice_key_requests_refused_total", "", \
      "Requests for block keys that were refused.") \
    X(KEYER, "keys_derived", COUNTER, ONE, "sluice_keys_derived_total", "", \
      "Block keys that were made.") \
    X(KEYER, "tokens_hashed", COUNTER, ONE, "sluice_keys_tokens_total", "", \
      "Tokens that block keys were made from.")

/* clang-format on */

#endif
