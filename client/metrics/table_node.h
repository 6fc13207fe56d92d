/* client/metrics/table_node.h - metrics of the node, of clients, and of every actor: rows of the table of table.h. */
#ifndef SL_CLIENT_METRICS_TABLE_NODE_H
#define SL_CLIENT_METRICS_TABLE_NODE_H

/* clang-format off */
/* What processes and the node are, from their pages and /proc. */
#define METRICS_NODE(X) \
    X(NODE, "build_info", GAUGE, ONE, "sluice_build_info", "", \
      "1, with the release of the program that made this text.") \
    X(NODE, "up", GAUGE, ONE, "sluice_actor_up", "", \
      "1 while the process of the actor lives, else 0.") \
    X(NODE, "state", GAUGE, ONE, "sluice_actor_state", "", \
      "1 for the state that the actor says it is in, 0 for the others.") \
    X(NODE, "restarts", COUNTER, ONE, "sluice_actor_restarts_total", "", \
      "Starts of the actor after its first one on this node.") \
    X(NODE, "uptime", GAUGE, NS, "sluice_actor_uptime_seconds", "", \
      "How long the actor's process has run; 0 when it does not.") \
    X(NODE, "silence", GAUGE, NS, "sluice_actor_silence_seconds", "", \
      "How long the actor's loop has not turned.") \
    X(NODE, "resident", GAUGE, BYTES, "sluice_actor_resident_memory_bytes", "", \
      "Memory of the actor's process, shared memory that it has touched included.") \
    X(NODE, "cpu", COUNTER, NS, "sluice_actor_cpu_seconds_total", "", \
      "Processor time that the actor's present process has used.") \
    X(NODE, "unknown", GAUGE, ONE, "sluice_actor_metrics_unknown", "", \
      "Metrics on the actor's page that the program that made this text does not know.") \
    X(NODE, "clients", GAUGE, ONE, "sluice_clients", "", \
      "Client processes that have a page of counts now.")

/* What clients count of what they do alone in shared memory (ipc/sl_counts.h), of all clients since
 * the node was started. */
#define METRICS_CLIENT(X) \
    X(CLIENT, "GET_MEMORY", COUNTER, ONE, "sluice_get_keys_total", "tier=memory", \
      "Keys that clients asked for by gets, by the tier where they were found; none: they are nowhere.") \
    X(CLIENT, "GET_DISK", COUNTER, ONE, "sluice_get_keys_total", "tier=disk", \
      "") \
    X(CLIENT, "GET_REMOTE", COUNTER, ONE, "sluice_get_keys_total", "tier=remote", \
      "") \
    X(CLIENT, "GET_MISSED", COUNTER, ONE, "sluice_get_keys_total", "tier=none", \
      "") \
    X(CLIENT, "GET_FAILED", COUNTER, ONE, "sluice_get_keys_failed_total", "", \
      "Keys of gets that ended by an error, as a deadline, so that nobody knows where they are; a buffer that was too small is no error, and no reference.") \
    X(CLIENT, "GET_SEEN", COUNTER, ONE, "sluice_get_keys_seen_total", "", \
      "Keys among those of tier none that were here once, removed ones included: unlimited memory would have had them. Less than 0.5 % of the others are counted, too, and of what left long ago not all.") \
    X(CLIENT, "GET_MEMORY_BYTES", COUNTER, BYTES, "sluice_get_bytes_total", "tier=memory", \
      "Bytes that gets gave to clients, by the tier where they were found.") \
    X(CLIENT, "GET_DISK_BYTES", COUNTER, BYTES, "sluice_get_bytes_total", "tier=disk", \
      "") \
    X(CLIENT, "GET_REMOTE_BYTES", COUNTER, BYTES, "sluice_get_bytes_total", "tier=remote", \
      "") \
    X(CLIENT, "LOOK_FOUND", COUNTER, ONE, "sluice_lookup_keys_total", "result=found", \
      "Keys that clients looked up without reading them.") \
    X(CLIENT, "LOOK_MISSED", COUNTER, ONE, "sluice_lookup_keys_total", "result=missing", \
      "") \
    X(CLIENT, "BLOCK_FOUND", COUNTER, ONE, "sluice_lookup_blocks_total", "result=found", \
      "Blocks of engines' pools that clients looked up without reading them.") \
    X(CLIENT, "BLOCK_MISSED", COUNTER, ONE, "sluice_lookup_blocks_total", "result=missing", \
      "") \
    X(CLIENT, "LOOK_FAILED", COUNTER, ONE, "sluice_lookup_keys_failed_total", "", \
      "Keys of look-ups that ended by an error, so that nobody knows whether they are there.") \
    X(CLIENT, "BLOCK_FAILED", COUNTER, ONE, "sluice_lookup_blocks_failed_total", "", \
      "Blocks of look-ups that ended by an error, so that nobody knows whether they are there.") \
    X(CLIENT, "TIME_MEMORY", HISTOGRAM, NS, "sluice_get_duration_seconds", "tier=memory", \
      "Time from a get's begin until its keys of this tier were there; of gets of one key in memory one in 16 is timed and counts 16 times.") \
    X(CLIENT, "TIME_DISK", HISTOGRAM, NS, "sluice_get_duration_seconds", "tier=disk", \
      "") \
    X(CLIENT, "TIME_REMOTE", HISTOGRAM, NS, "sluice_get_duration_seconds", "tier=remote", \
      "") \
    X(CLIENT, "TIME_BLOCKS", HISTOGRAM, NS, "sluice_lookup_blocks_duration_seconds", "", \
      "Time of an engine's look-up of all blocks of a prompt.") \
    X(CLIENT, "TIME_KEYS", HISTOGRAM, NS, "sluice_lookup_keys_duration_seconds", "", \
      "Time of a look-up of keys, for each of its keys; of look-ups of fewer than 256 one in 64 is timed and counts 64 times: a look at a clock would cost each of them a third. Its buckets end at 1, 10 and 100 us, 1, 10 and 100 ms.")

/* By model (ipc/sl_labels.h): the coordinator counts loads and stores, clients count look-ups. */
#define METRICS_MODEL(X) \
    X(MODEL, "NAME", GAUGE, ONE, "sluice_model_info", "", \
      "1, with the identity of a model that engines use, which is a hash of all that gives bytes their meaning, and its name.") \
    X(MODEL, "MEMORY", COUNTER, ONE, "sluice_model_load_blocks_total", "tier=memory", \
      "Blocks that engines' loads asked for, by model and by the tier where they were found; none: they were not loaded.") \
    X(MODEL, "DISK", COUNTER, ONE, "sluice_model_load_blocks_total", "tier=disk", \
      "") \
    X(MODEL, "REMOTE", COUNTER, ONE, "sluice_model_load_blocks_total", "tier=remote", \
      "") \
    X(MODEL, "NONE", COUNTER, ONE, "sluice_model_load_blocks_total", "tier=none", \
      "") \
    X(MODEL, "FAILED", COUNTER, ONE, "sluice_model_load_blocks_failed_total", "", \
      "Blocks of loads that were refused, or ended by an error before they came to them, by model.") \
    X(MODEL, "SEEN", COUNTER, ONE, "sluice_model_load_blocks_seen_total", "", \
      "Blocks among those of tier none that were here once, by model: unlimited memory would have had them.") \
    X(MODEL, "BYTES", COUNTER, BYTES, "sluice_model_load_bytes_total", "", \
      "Bytes that loads copied to engines, by model.") \
    X(MODEL, "LOOK_FOUND", COUNTER, ONE, "sluice_model_lookup_blocks_total", "result=found", \
      "Blocks that engines looked up without loading them, by model; what is behind a prefix counts as missing.") \
    X(MODEL, "LOOK_MISSED", COUNTER, ONE, "sluice_model_lookup_blocks_total", "result=missing", \
      "") \
    X(MODEL, "LOOK_FAILED", COUNTER, ONE, "sluice_model_lookup_blocks_failed_total", "", \
      "Blocks of look-ups that ended by an error, by model.") \
    X(MODEL, "STORED", COUNTER, ONE, "sluice_model_store_blocks_total", "result=stored", \
      "Blocks that engines' stores brought, by model: stored, there already, or not stored.") \
    X(MODEL, "EXISTED", COUNTER, ONE, "sluice_model_store_blocks_total", "result=existed", \
      "") \
    X(MODEL, "REFUSED", COUNTER, ONE, "sluice_model_store_blocks_total", "result=refused", \
      "") \
    X(MODEL, "STORED_BYTES", COUNTER, BYTES, "sluice_model_store_bytes_total", "", \
      "Bytes that stores copied from engines, by model.")

/* By tenant (ipc/sl_labels.h): of clients that have one, as mooncake.store with tenant_id. */
#define METRICS_TENANT(X) \
    X(TENANT, "MEMORY", COUNTER, ONE, "sluice_tenant_get_keys_total", "tier=memory", \
      "Keys that clients of a tenant asked for by gets, by the tier where they were found; they are among sluice_get_keys_total, too.") \
    X(TENANT, "DISK", COUNTER, ONE, "sluice_tenant_get_keys_total", "tier=disk", \
      "") \
    X(TENANT, "REMOTE", COUNTER, ONE, "sluice_tenant_get_keys_total", "tier=remote", \
      "") \
    X(TENANT, "NONE", COUNTER, ONE, "sluice_tenant_get_keys_total", "tier=none", \
      "") \
    X(TENANT, "FAILED", COUNTER, ONE, "sluice_tenant_get_keys_failed_total", "", \
      "Keys of gets of a tenant's clients that ended by an error.") \
    X(TENANT, "SEEN", COUNTER, ONE, "sluice_tenant_get_keys_seen_total", "", \
      "Keys among those of tier none that were here once, by tenant: unlimited memory would have had them.") \
    X(TENANT, "BYTES", COUNTER, BYTES, "sluice_tenant_get_bytes_total", "", \
      "Bytes that gets gave to clients of a tenant.") \
    X(TENANT, "LOOK_FOUND", COUNTER, ONE, "sluice_tenant_lookup_keys_total", "result=found", \
      "Keys that clients of a tenant looked up without reading them.") \
    X(TENANT, "LOOK_MISSED", COUNTER, ONE, "sluice_tenant_lookup_keys_total", "result=missing", \
      "") \
    X(TENANT, "LOOK_FAILED", COUNTER, ONE, "sluice_tenant_lookup_keys_failed_total", "", \
      "Keys of look-ups of a tenant's clients that ended by an error.")

/* What every actor counts of its messages (ipc/). */
#define METRICS_PROCESS(X) \
    X(ANY, "messages_received", COUNTER, ONE, "sluice_actor_messages_total", "direction=received", \
      "Messages that the actor received and sent.") \
    X(ANY, "messages_sent", COUNTER, ONE, "sluice_actor_messages_total", "direction=sent", \
      "") \
    X(ANY, "messages_refused", COUNTER, ONE, "sluice_actor_messages_refused_total", "", \
      "Messages that the actor refused because they were malformed or unknown.") \
    X(ANY, "sends_unreachable", COUNTER, ONE, "sluice_actor_sends_failed_total", "reason=unreachable", \
      "Messages that the actor could not send, because nobody was there or a queue was full.") \
    X(ANY, "sends_limited", COUNTER, ONE, "sluice_actor_sends_failed_total", "reason=limit", \
      "") \
    X(ANY, "handler_errors", COUNTER, ONE, "sluice_actor_handler_errors_total", "", \
      "Messages whose handling ended by an error.") \
    X(ANY, "replies_lost", COUNTER, ONE, "sluice_actor_replies_lost_total", "", \
      "Replies that could not be sent to whoever asked.") \
    X(ANY, "queue_frames_sent", COUNTER, ONE, "sluice_actor_frames_total", "way=queue,direction=sent", \
      "Frames by the way that they took: a queue in shared memory, or a socket.") \
    X(ANY, "queue_frames_received", COUNTER, ONE, "sluice_actor_frames_total", "way=queue,direction=received", \
      "") \
    X(ANY, "socket_frames_sent", COUNTER, ONE, "sluice_actor_frames_total", "way=socket,direction=sent", \
      "") \
    X(ANY, "socket_frames_received", COUNTER, ONE, "sluice_actor_frames_total", "way=socket,direction=received", \
      "") \
    X(ANY, "doorbells_rung", COUNTER, ONE, "sluice_actor_doorbells_total", "", \
      "Sleeping receivers that the actor woke.") \
    X(ANY, "wakeups_avoided", COUNTER, ONE, "sluice_actor_wakeups_avoided_total", "", \
      "Frames by shared memory whose receiver was awake.") \
    X(ANY, "late_wakeups", COUNTER, ONE, "sluice_actor_late_wakeups_total", "", \
      "Frames that were found by looking again and not by a wake-up.") \
    X(ANY, "queues_attached", GAUGE, ONE, "sluice_actor_queues", "", \
      "Queues in shared memory that the actor has with others now.") \
    X(ANY, "queues_refused", COUNTER, ONE, "sluice_actor_queues_refused_total", "", \
      "Queues that others offered and the actor refused.") \
    X(ANY, "queues_dropped", COUNTER, ONE, "sluice_actor_queues_dropped_total", "", \
      "Queues that ended for what the other side wrote, or did not do in time.") \
    X(ANY, "unsupervised_since_ms", GAUGE, MS, "sluice_actor_unsupervised_timestamp_seconds", "", \
      "Since when, in Unix time, the actor has had no supervisor; 0: it has one.") \
    X(ANY, "handle_ns", HISTOGRAM, NS, "sluice_actor_handle_duration_seconds", "", \
      "Time that the handling of one message took.")

/* clang-format on */

#endif
