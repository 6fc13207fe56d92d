/* client/mooncake/daemons/master_flags.h - the flags of mooncake_master. Names and defaults are
 * those of Mooncake's master, so that its launch scripts work; `memory`, `join` and
 * `cluster_address` are ours. */
#ifndef SL_CLIENT_MOONCAKE_DAEMONS_MASTER_FLAGS_H
#define SL_CLIENT_MOONCAKE_DAEMONS_MASTER_FLAGS_H

#include "client/mooncake/daemons/flags.h"

#define MC_PATH_BYTES 900u
#define MC_HOUR_MS    UINT64_C(3600000)
#define MC_YEAR_MS    (UINT64_C(8760) * MC_HOUR_MS)
#define MC_INT_MAX    UINT64_C(2147483647)
#define MC_SIZE_MAX   UINT64_C(9223372036854775807)

#define MC_ONE_HOST "a node of Sluice is one host's"
#define MC_NO_NOF   "Sluice has no NVMe over fabrics"
#define MC_NO_TASKS \
    "there are no copies to move between hosts: all values of a node lie in one arena"
#define MC_NO_SHADOW "Sluice writes values to disk behind every put, not when they are evicted"
#define MC_KEPT      "memory outlives the node's processes by itself"

/* X(name, KIND, default, low, high, choices, USE, help) */
#define MC_MASTER_FLAGS(X)                                                                         \
    X(config_path, TEXT, "", 0, MC_PATH_BYTES, NULL, USED,                                         \
      "JSON or YAML file with these names; the command line wins")                                 \
    X(rpc_port, COUNT, "0", 0, 65535, NULL, USED, "wins over port when it is not 0")               \
    X(port, COUNT, "50051", 1, 65535, NULL, USED,                                                  \
      "names the node: its instance is mooncake-PORT ($SLUICE_INSTANCE wins); bound, so that "     \
      "probes find somebody, and answered with one line of JSON")                                  \
    X(rpc_thread_num, COUNT, "0", 0, 65535, NULL, IGNORED, "no calls come over the network")       \
    X(max_threads, COUNT, "16", 0, 65535, NULL, IGNORED, "no calls come over the network")         \
    X(listen_host, TEXT, "127.0.0.1", 1, 255, NULL, USED,                                          \
      "ours: where ports are bound whose own address is not given (rpc_address, metrics_host, "    \
      "http_metadata_server_host); 0.0.0.0, as Mooncake's master has it, opens all to the net")    \
    X(rpc_address, TEXT, "", 0, 255, NULL, USED,                                                   \
      "where the port is bound; empty: listen_host, and 0.0.0.0 for hosts that may join (a "       \
      "cluster's secret is set)")                                                                  \
    X(rpc_interface, TEXT, "", 0, 15, NULL, USED,                                                  \
      "network interface whose address is bound instead of rpc_address")                           \
    X(rpc_conn_timeout_seconds, SECONDS, "0", 0, MC_YEAR_MS, NULL, USED,                           \
      "a host that connects to join shows the secret within this; 0: 3 s")                         \
    X(rpc_enable_tcp_no_delay, BOOL, "true", 0, 1, NULL, IGNORED,                                  \
      "no calls come over the network")                                                            \
    X(metrics_port, COUNT, "9003", 1, 65535, NULL, USED, "port of the admin HTTP")                 \
    X(metrics_host, TEXT, "", 0, 255, NULL, USED,                                                  \
      "address of the admin HTTP; empty: listen_host. Requests that change or remove need the "    \
      "token of $MOONCAKE_ADMIN_TOKEN or $MOONCAKE_ADMIN_TOKEN_FILE; without one they are "        \
      "answered over the loopback only")                                                           \
    X(allowed_origins, TEXT, "", 0, 1023, NULL, USED,                                              \
      "ours: web pages that may ask the admin HTTP and the metadata server, as "                   \
      "https://HOST:PORT, separated by commas; all others are refused")                            \
    X(enable_metric_reporting, BOOL, "true", 0, 1, NULL, IGNORED,                                  \
      "the master logs no summary at intervals; /metrics is always there")                         \
    X(default_kv_lease_ttl, MILLIS, "10000", 0, MC_YEAR_MS, NULL, USED,                            \
      "how long a look-up keeps a value; the node's setting lease_ttl")                            \
    X(default_kv_soft_pin_ttl, MILLIS, "30m", 0, MC_YEAR_MS, NULL, IGNORED,                        \
      "a put that names none takes 30 minutes, as the client library says")                        \
    X(max_kv_soft_pin_ttl, MILLIS, "24h", 0, MC_YEAR_MS, NULL, USED,                               \
      "longest soft pin; the node's setting soft_pin_max")                                         \
    X(allow_evict_soft_pinned_objects, BOOL, "true", 0, 1, NULL, IGNORED,                          \
      "soft-pinned values leave when nothing else is left")                                        \
    X(eviction_ratio, REAL, "0.05", 0, 1, NULL, USED,                                              \
      "share that goes in one eviction; the node's setting evict_ratio")                           \
    X(eviction_high_watermark_ratio, REAL, "0.90", 0, 1, NULL, USED,                               \
      "share in use above which values are evicted; the node's setting evict_watermark")           \
    X(nof_eviction_ratio, REAL, "0.05", 0, 1, NULL, IGNORED, MC_NO_NOF)                            \
    X(nof_eviction_high_watermark_ratio, REAL, "0.90", 0, 1, NULL, IGNORED, MC_NO_NOF)             \
    X(put_start_discard_timeout_sec, SECONDS, "30", 1000, MC_YEAR_MS, NULL, USED,                  \
      "a newcomer takes the place of a writer that is older; the node's setting put_preempt")      \
    X(put_start_release_timeout_sec, SECONDS, "600", 1000, MC_YEAR_MS, NULL, USED,                 \
      "memory of a put that is not ended is free again; the node's setting put_release")           \
    X(client_ttl, SECONDS, "10", 0, MC_YEAR_MS, NULL, IGNORED,                                     \
      "the death of a process is noticed at once, and nobody has to ping")                         \
    X(memory_allocator, TEXT, "offset", 0, 64, "offset cachelib", IGNORED, "Sluice has its own")   \
    X(allocation_strategy, TEXT, "random", 0, 64,                                                  \
      "random free_ratio_first local_first ssd_free_ratio_first cxl", USED,                        \
      "whose contribution is charged, behind preferred ones; the node's setting "                  \
      "contribution_strategy: free_ratio_first and ssd_free_ratio_first are free, local_first "    \
      "local, all others random")                                                                  \
    X(enable_http_metadata_server, BOOL, "false", 0, 1, NULL, USED,                                \
      "serve /metadata for transfer engines on a port of its own")                                 \
    X(http_metadata_server_port, COUNT, "8080", 1, 65535, NULL, USED, "its port")                  \
    X(http_metadata_server_host, TEXT, "", 0, 255, NULL, USED, "its address; empty: listen_host")  \
    X(metadata_open, BOOL, "false", 0, 1, NULL, USED,                                              \
      "ours: /metadata is written without the token of $MOONCAKE_ADMIN_TOKEN, also where there "   \
      "is one")                                                                                    \
    X(enable_metadata_cleanup_on_timeout, BOOL, "false", 0, 1, NULL, IGNORED,                      \
      "nobody pings, so nobody times out")                                                         \
    X(enable_offload, BOOL, "false", 0, 1, NULL, USED,                                             \
      "the node gets a disk tier: MOONCAKE_OFFLOAD_FILE_STORAGE_PATH (/data/file_storage), "       \
      "MOONCAKE_OFFLOAD_TOTAL_SIZE_LIMIT_BYTES")                                                   \
    X(offload_on_evict, BOOL, "false", 0, 1, NULL, IGNORED, MC_NO_SHADOW)                          \
    X(offload_force_evict, BOOL, "false", 0, 1, NULL, IGNORED, MC_NO_SHADOW)                       \
    X(offloading_queue_limit, COUNT, "50000", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_SHADOW)          \
    X(offload_cap_ratio, REAL, "0.5", 0, 1, NULL, IGNORED, MC_NO_SHADOW)                           \
    X(promotion_on_hit, BOOL, "false", 0, 1, NULL, IGNORED,                                        \
      "what is read from disk always comes into memory first")                                     \
    X(promotion_admission_threshold, COUNT, "2", 0, MC_INT_MAX, NULL, IGNORED,                     \
      "what is read from disk always comes into memory first")                                     \
    X(promotion_queue_limit, COUNT, "50000", 0, MC_INT_MAX, NULL, IGNORED,                         \
      "what is read from disk always comes into memory first")                                     \
    X(promotion_max_per_heartbeat, COUNT, "1", 0, MC_INT_MAX, NULL, IGNORED,                       \
      "what is read from disk always comes into memory first")                                     \
    X(dynamic_replication_mode, TEXT, "off", 0, 16, "off observe enforce", IGNORED, MC_ONE_HOST)   \
    X(dynamic_replication_heat_window_seconds, SECONDS, "10", 0, MC_YEAR_MS, NULL, IGNORED,        \
      MC_ONE_HOST)                                                                                 \
    X(dynamic_replication_admission_qps_threshold, REAL, "0.8", 0, MC_INT_MAX, NULL, IGNORED,      \
      MC_ONE_HOST)                                                                                 \
    X(dynamic_replication_max_memory_replicas, COUNT, "2", 0, 1024, NULL, IGNORED, MC_ONE_HOST)    \
    X(root_fs_dir, TEXT, "", 0, MC_PATH_BYTES, NULL, USED,                                         \
      "the node gets a disk tier here (MOONCAKE_OFFLOAD_FILE_STORAGE_PATH wins)")                  \
    X(global_file_segment_size, SIZE, "9223372036854775807", 0, MC_SIZE_MAX, NULL, USED,           \
      "the disk tier is no larger")                                                                \
    X(cluster_id, TEXT, "mooncake_cluster", 0, 255, NULL, IGNORED,                                 \
      "the node's setting directory_name names a cluster")                                         \
    X(enable_disk_eviction, BOOL, "true", 0, 1, NULL, IGNORED, "a full disk tier always evicts")   \
    X(quota_bytes, SIZE, "0", 0, MC_SIZE_MAX, NULL, USED,                                          \
      "size of the disk tier; 0: 90 % of the disk")                                                \
    X(enable_ha, BOOL, "false", 0, 1, NULL, IGNORED, MC_KEPT)                                      \
    X(ha_backend_type, TEXT, "etcd", 0, 16, "etcd redis k8s", IGNORED, MC_KEPT)                    \
    X(ha_backend_connstring, TEXT, "", 0, 1023, NULL, IGNORED, MC_KEPT)                            \
    X(etcd_endpoints, TEXT, "", 0, 1023, NULL, IGNORED, MC_KEPT)                                   \
    X(enable_oplog, BOOL, "false", 0, 1, NULL, IGNORED, MC_KEPT)                                   \
    X(oplog_poll_interval_ms, MILLIS, "1000", 0, MC_YEAR_MS, NULL, IGNORED, MC_KEPT)               \
    X(oplog_batch_max_entries, COUNT, "1024", 0, MC_INT_MAX, NULL, IGNORED, MC_KEPT)               \
    X(batch_oplog_retry_timeout_sec, SECONDS, "180", 0, MC_YEAR_MS, NULL, IGNORED, MC_KEPT)        \
    X(enable_snapshot, BOOL, "false", 0, 1, NULL, IGNORED, MC_KEPT)                                \
    X(enable_snapshot_restore, BOOL, "false", 0, 1, NULL, IGNORED, MC_KEPT)                        \
    X(snapshot_interval_seconds, SECONDS, "600", 0, MC_YEAR_MS, NULL, IGNORED, MC_KEPT)            \
    X(snapshot_child_timeout_seconds, SECONDS, "300", 0, MC_YEAR_MS, NULL, IGNORED, MC_KEPT)       \
    X(snapshot_retention_count, COUNT, "2", 0, MC_INT_MAX, NULL, IGNORED, MC_KEPT)                 \
    X(snapshot_backup_dir, TEXT, "", 0, MC_PATH_BYTES, NULL, IGNORED, MC_KEPT)                     \
    X(snapshot_object_store_type, TEXT, "", 0, 16, "local s3", IGNORED, MC_KEPT)                   \
    X(snapshot_object_store_connstring, TEXT, "", 0, 1023, NULL, IGNORED, MC_KEPT)                 \
    X(snapshot_catalog_store_type, TEXT, "", 0, 16, "embedded redis", IGNORED, MC_KEPT)            \
    X(snapshot_catalog_store_connstring, TEXT, "", 0, 1023, NULL, IGNORED, MC_KEPT)                \
    X(enable_kv_events, BOOL, "false", 0, 1, NULL, IGNORED, "no events are published")             \
    X(kv_events_bind_endpoint, TEXT, "", 0, 255, NULL, IGNORED, "no events are published")         \
    X(kv_events_backend_id, TEXT, "", 0, 255, NULL, IGNORED, "no events are published")            \
    X(kv_events_emit_legacy_compat, BOOL, "true", 0, 1, NULL, IGNORED, "no events are published")  \
    X(kv_events_emit_object_key, BOOL, "true", 0, 1, NULL, IGNORED, "no events are published")     \
    X(kv_events_queue_capacity, COUNT, "65536", 0, MC_INT_MAX, NULL, IGNORED,                      \
      "no events are published")                                                                   \
    X(enable_multi_tenants, BOOL, "false", 0, 1, NULL, IGNORED,                                    \
      "tenants have name spaces of their own, and no quotas")                                      \
    X(tenant_quota_connector_type, TEXT, "file", 0, 16, "file etcd", IGNORED,                      \
      "tenants have no quotas")                                                                    \
    X(tenant_quota_connector_uri, TEXT, "", 0, 1023, NULL, IGNORED, "tenants have no quotas")      \
    X(max_total_finished_tasks, COUNT, "10000", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_TASKS)         \
    X(max_total_pending_tasks, COUNT, "10000", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_TASKS)          \
    X(max_total_processing_tasks, COUNT, "10000", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_TASKS)       \
    X(pending_task_timeout_sec, SECONDS, "300", 0, MC_YEAR_MS, NULL, IGNORED, MC_NO_TASKS)         \
    X(processing_task_timeout_sec, SECONDS, "300", 0, MC_YEAR_MS, NULL, IGNORED, MC_NO_TASKS)      \
    X(max_retry_attempts, COUNT, "10", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_TASKS)                  \
    X(enable_cxl, BOOL, "false", 0, 1, NULL, IGNORED, "values lie in shared memory")               \
    X(cxl_path, TEXT, "/dev/dax0.0", 0, MC_PATH_BYTES, NULL, IGNORED,                              \
      "values lie in shared memory")                                                               \
    X(cxl_size, SIZE, "8gb", 0, MC_SIZE_MAX, NULL, IGNORED, "values lie in shared memory")         \
    X(nof_heartbeat_interval_sec, SECONDS, "10", 0, MC_YEAR_MS, NULL, IGNORED, MC_NO_NOF)          \
    X(nof_heartbeat_probe_timeout_ms, MILLIS, "1000", 0, MC_YEAR_MS, NULL, IGNORED, MC_NO_NOF)     \
    X(nof_heartbeat_failures_threshold, COUNT, "3", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_NOF)       \
    X(nof_probe_timeout_ms, MILLIS, "1000", 0, MC_YEAR_MS, NULL, IGNORED, MC_NO_NOF)               \
    X(nof_failures_threshold, COUNT, "3", 0, MC_INT_MAX, NULL, IGNORED, MC_NO_NOF)                 \
    X(pod_name, TEXT, "", 0, 255, NULL, IGNORED, "no label is set on a pod")                       \
    X(pod_namespace, TEXT, "", 0, 255, NULL, IGNORED, "no label is set on a pod")                  \
    X(join, TEXT, "", 0, 255, NULL, USED,                                                          \
      "ours: HOST:PORT of another host's master: the node of this host serves that master's "      \
      "clients here and shares values with its nodes; all know MOONCAKE_CLUSTER_SECRET")           \
    X(cluster_address, TEXT, "", 0, 63, NULL, USED,                                                \
      "ours: IP at which other hosts reach this one; empty: the way to the master that is "        \
      "joined, or the first address")                                                              \
    X(cluster_dir, TEXT, "", 0, MC_PATH_BYTES, NULL, USED,                                         \
      "ours: directory of this host's name and keys in the cluster, which should outlive a boot; " \
      "empty: $XDG_STATE_HOME/sluice/INSTANCE/cluster, /var/lib/sluice/... for root, "             \
      "~/.local/state/sluice/..., or with none of them the runtime directory")                     \
    X(member_ttl, SECONDS, "1h", 0, MC_YEAR_MS, NULL, USED,                                        \
      "ours: a host of the cluster that was not heard of for so long makes room for a new one "    \
      "(there are 65 at most)")                                                                    \
    X(memory, SIZE, "0", 0, MC_SIZE_MAX, NULL, USED,                                               \
      "ours: ceiling of what clients may contribute together, in shared memory, which is taken "   \
      "as they contribute; 0: 80 % of what /dev/shm has free")                                     \
    MC_LOGGING_FLAGS(X)

/* Flags of the logging library that Mooncake's programs are built with: launch scripts set them. */
#define MC_LOGGING_FLAGS(X)                                                                        \
    X(logtostderr, BOOL, "false", 0, 1, NULL, IGNORED, "this process logs to stderr")              \
    X(alsologtostderr, BOOL, "false", 0, 1, NULL, IGNORED, "this process logs to stderr")          \
    X(colorlogtostderr, BOOL, "false", 0, 1, NULL, IGNORED, "lines are JSON")                      \
    X(stderrthreshold, COUNT, "2", 0, 3, NULL, IGNORED, "this process logs to stderr")             \
    X(minloglevel, COUNT, "0", 0, 3, NULL, USED, "0 info, 1 warnings, 2 and 3 errors alone")       \
    X(v, COUNT, "0", 0, 100, NULL, IGNORED, "SLUICE_LOG_LEVEL sets what the node's processes log") \
    X(log_dir, TEXT, "", 0, MC_PATH_BYTES, NULL, USED,                                             \
      "logs of the node's processes; \"\": its runtime directory")                                 \
    X(max_log_size, COUNT, "1800", 0, MC_INT_MAX, NULL, IGNORED, "files are not cut")

#define MC_MASTER_ENUM(name, kind, standard, low, high, choices, use, help) MASTER_##name,
enum mc_master_flag { MC_MASTER_FLAGS(MC_MASTER_ENUM) MASTER_COUNT };

extern const struct mc_flag mc_master_flags[MASTER_COUNT];

#endif
