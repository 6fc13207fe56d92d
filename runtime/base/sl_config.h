/* runtime/base/sl_config.h - settings: one table, four sources, strict types.
 *
 * The sources of a value, in rising order of precedence: the default in the table, the config file,
 * the environment (SLUICE_NAME, upper case), the command line (--name VALUE or --name=VALUE; `-`
 * and `_` are the same). All sources share one syntax: surrounding blanks are dropped, and quotes
 * keep what they enclose. The file has lines `name = value`; a comment begins with # at the start
 * of a line or after a blank. An unknown name, a wrong type and a value out of range are
 * SL_ERR_CONFIG, and the text names the source: file and line, variable, or option. An empty value
 * is an error except for texts. */
#ifndef SL_CONFIG_H
#define SL_CONFIG_H

#include "runtime/base/sl_error.h"

enum sl_setting_kind {
    SL_SETTING_BOOL,     /* true false yes no on off 1 0; anything else ("flase") is an error */
    SL_SETTING_COUNT,    /* decimal integer */
    SL_SETTING_SIZE,     /* bytes, as sl_parse_size */
    SL_SETTING_DURATION, /* ns: integer or decimal with ns us ms s min h; 0 needs no unit */
    SL_SETTING_RATIO,    /* 0..1 as decimal; kept as parts per million in u64 */
    SL_SETTING_TEXT,     /* at most SL_SETTING_TEXT_BYTES_MAX bytes */
};
#define SL_SETTING_TEXT_BYTES_MAX 1023u

/* X(name, KIND, default text, min, max, help). For TEXT max is the longest length. */
#define SL_SETTING_TABLE(X)                                                                        \
    X(instance, TEXT, "default", 1, 40, "name of the node on this machine: [a-z0-9-]")             \
    X(runtime_dir, TEXT, "", 0, 1023, "sockets and logs; empty: chosen by uid and instance")       \
    X(shm_dir, TEXT, "", 0, 1023, "shared memory files; empty: /dev/shm/sluice-UID/INSTANCE")      \
    X(log_dir, TEXT, "", 0, 1023, "log files; empty: RUNTIME_DIR/log")                             \
    X(log_level, TEXT, "info", 4, 5, "error, warn, info, debug or trace")                          \
    X(log_bytes_max, SIZE, "32MiB", 65536, 1099511627776,                                          \
      "size limit of an actor's logs: at half of it ACTOR.jsonl becomes ACTOR.jsonl.1")            \
    X(ranks, COUNT, "1", 1, 64, "tensor-parallel ranks: one swapper each")                         \
    X(rank, COUNT, "0", 0, 63, "rank of a swapper, number of a tierer's disk; others 0")           \
    X(priority, COUNT, "10", 0, 20,                                                                \
      "nice levels by which actors' priority is raised, where permitted; 0: not raised")           \
    X(memory, SIZE, "1GiB", 1048576, 17592186044416,                                               \
      "size limit of the arena; unset: less where less memory is available")                       \
    X(memory_chunk, SIZE, "1GiB", 1048576, 1073741824, "largest chunk; no value may be larger")    \
    X(index_memory, SIZE, "0", 0, 1099511627776,                                                   \
      "size limit of the index; 0: memory/8 + disk/16 (at most memory or 1 GiB), at least 64 MiB") \
    X(index_keys, COUNT, "0", 0, 1000000000,                                                       \
      "number of keys the hash table is sized for; 0: derived from index_memory")                  \
    X(populate_threads, COUNT, "2", 1, 64, "threads that prefault the arena while it serves")      \
    X(disk, SIZE, "0", 0, 1125899906842624,                                                        \
      "size limit of the disk tier, all its paths together; 0: no disk tier")                      \
    X(disk_path, TEXT, "", 0, 1023,                                                                \
      "directories of the disk tier, one per disk, separated by commas; empty: RUNTIME_DIR/disk")  \
    X(disk_segment, SIZE, "64MiB", 1048576, 1073741824,                                            \
      "size of one log file; larger where a disk would have over 8,000 of them")                   \
    X(disk_queue_depth, COUNT, "32", 1, 1024, "io_uring requests in flight on a disk")             \
    X(disk_direct, BOOL, "true", 0, 1, "use O_DIRECT where the file system supports it")           \
    X(disk_staging, SIZE, "64MiB", 1048576, 17179869184, "size of the buffer for disk reads")      \
    X(disk_staging_usable, RATIO, "0.9", 0, 1000000, "share of disk_staging that may be used")     \
    X(disk_prefetch, SIZE, "8MiB", 4096, 17179869184,                                              \
      "bytes that a disk reads ahead of use at a time; a larger value is read by itself")          \
    X(prefetch_sessions, COUNT, "4096", 0, 1048576,                                                \
      "sessions whose blocks are read from disk before the next request; 0: none")                 \
    X(disk_admission, TEXT, "all", 3, 6,                                                           \
      "values written to disk: all, reuse (likely to be used again) or second (requested twice)")  \
    X(disk_admission_min, RATIO, "0.15", 0, 1000000,                                               \
      "disk_admission = reuse: lowest chance of reuse while on disk that admits a value")          \
    X(disk_write_budget, SIZE, "0", 0, 1125899906842624,                                           \
      "bytes per day written to each disk; up to a day's budget is saved up; 0: no limit")         \
    X(op_timeout, DURATION, "2s", 1000000, 3600000000000, "deadline of operations that name none") \
    X(reservation_ttl, DURATION, "2s", 1000000, 3600000000000,                                     \
      "how long a reservation is kept for its owner")                                              \
    X(lease_ttl, DURATION, "0", 0, 86400000000000,                                                 \
      "lifetime of a lease that a lookup by a client with leases takes; 0: no leases")             \
    X(block_lease, DURATION, "5s", 0, 3600000000000,                                               \
      "longest time that a lookup of blocks protects them from eviction; 0: not at all")           \
    X(soft_pin_max, DURATION, "24h", 0, 31536000000000000,                                         \
      "longest soft pin that a put may request")                                                   \
    X(fence_timeout, DURATION, "1s", 1000000, 60000000000,                                         \
      "an actor that does not acknowledge a fence within this time is killed")                     \
    X(io_grace, DURATION, "30s", 0, 3600000000000,                                                 \
      "quarantine of memory after the death of a process with disk i/o in flight")                 \
    X(call_retry, DURATION, "100ms", 1000000, 10000000000,                                         \
      "time after which an unanswered idempotent request is resent")                               \
    X(heartbeat, DURATION, "500ms", 10000000, 60000000000,                                         \
      "interval between an actor's HELLO messages to the registrar")                               \
    X(reservations_max, COUNT, "65536", 16, 16777216, "live reservations, all owners together")    \
    X(prealloc_max, COUNT, "64", 0, 65536, "extents preallocated for one client; 0: none")         \
    X(clients_max, COUNT, "256", 1, 65535, "attached processes, including actors")                 \
    X(client_pins_max, COUNT, "8192", 16, 1048576, "pin slots of one client")                      \
    X(engines_max, COUNT, "64", 1, 1024, "registered engines; each rank of a team counts")         \
    X(pools_max, COUNT, "512", 1, 65536, "registered pools of all engines: ranks times pools")     \
    X(quarantine_bytes_max, SIZE, "0", 0, 17592186044416,                                          \
      "quarantined bytes that one owner may cause; 0: 1/4 of memory")                              \
    X(ghosts_max, COUNT, "65536", 0, 16777216, "evictions and refusals kept for explain")          \
    X(evict_policy, TEXT, "density", 3, 7,                                                         \
      "eviction order: density (lowest expected benefit, learned) or lru (least recently used)")   \
    X(record, TEXT, "", 0, 1023,                                                                   \
      "file where the registrar records requests, for python -m sluice.advise; empty: none")       \
    X(record_max, SIZE, "256MiB", 65536, 1099511627776,                                            \
      "size limit of the recording, which ends there")                                             \
    X(evict_batch, COUNT, "64", 1, 65536, "blocks evicted per scan of the pins")                   \
    X(evict_watermark, RATIO, "1", 0, 1000000,                                                     \
      "share of memory in use above which values are evicted ahead of need; 1: only when needed")  \
    X(evict_ratio, RATIO, "0.05", 0, 1000000,                                                      \
      "how far below evict_watermark that eviction reduces the share in use")                      \
    X(contributions, BOOL, "false", 0, 1,                                                          \
      "values may use memory that processes contribute, at most memory; false: all of memory")     \
    X(put_preempt, DURATION, "30s", 0, 31536000000000000,                                          \
      "time after which another writer may take over a key being written; 0: never")               \
    X(put_release, DURATION, "600s", 1000000, 31536000000000000,                                   \
      "how long a put session may stay open before its memory is freed")                           \
    X(queue_messages, COUNT, "1024", 16, 65536, "requests of one kind that may wait in an actor")  \
    X(queue_spin, DURATION, "100us", 0, 10000000,                                                  \
      "longest busy-wait on a queue, while there are spare cores; 0: sleep at once")               \
    X(message_bytes_max, SIZE, "32MiB", 65536, 1073741824, "largest message")                      \
    X(swap_staging, SIZE, "32MiB", 65536, 17179869184,                                             \
      "staging memory of one swapper, used in two halves")                                         \
    X(swap_multiprocessors, COUNT, "8", 0, 1024,                                                   \
      "GPU multiprocessors that Sluice's kernels may use; 0: all")                                 \
    X(swap_kernels, TEXT, "auto", 4, 6,                                                            \
      "kernels while an engine computes on the GPU: always, never, or auto: only with MPS")        \
    X(swap_rate, SIZE, "0", 0, 1125899906842624,                                                   \
      "bytes per second that a swapper copies, to leave the bus to others; 0: no limit")           \
    X(load_verify, TEXT, "auto", 3, 6,                                                             \
      "blocks of a load digested again on the device: all, sample (1 byte of 32), off, or "        \
      "auto: all where the GPU needs under 5 % of the load's time, else sample")                   \
    X(swap_measure, BOOL, "true", 0, 1, "measure once which copy method is fastest on a GPU")      \
    X(device, TEXT, "host", 4, 4, "device back end: host, cuda, or auto: cuda where it can run")   \
    X(trace_events, COUNT, "65536", 64, 16777216, "events that an actor's flight recorder keeps")  \
    X(nic, TEXT, "", 0, 1023,                                                                      \
      "RDMA devices: one for all ranks, a comma list (see nic_by), or auto: nearest to each GPU")  \
    X(nic_by, TEXT, "gpu", 3, 4,                                                                   \
      "how a list in nic is assigned: by gpu (physical index) or rank (rank modulo entries)")      \
    X(mr_bytes_max, SIZE, "0", 0, 1099511627776,                                                   \
      "largest memory region; 0: MC_MAX_MR_SIZE or 4 GiB")                                         \
    X(fabric, TEXT, "off", 3, 5, "transport of values between nodes: off, tcp or verbs")           \
    X(fabric_address, TEXT, "", 0, 1023,                                                           \
      "tcp: IP or IP:PORT to listen on, a comma list for several rails; empty: none")              \
    X(fabric_lanes, COUNT, "4", 1, 16, "connections or queue pairs per peer")                      \
    X(fabric_depth, COUNT, "16", 1, 64, "requests in flight per lane")                             \
    X(fabric_unit, SIZE, "1MiB", 16384, 4194304, "largest request, a multiple of 16 KiB")          \
    X(fabric_io_threads, COUNT, "4", 0, 16,                                                        \
      "tcp: threads that copy and digest, at most half of the cores (2 of 2); 0: none")            \
    X(fabric_connections_max, COUNT, "512", 1, 65535,                                              \
      "tcp: incoming connections; cluster_listen: unauthenticated connections")                    \
    X(fabric_unauthenticated_max, COUNT, "64", 1, 65535,                                           \
      "tcp, cluster_listen: unauthenticated connections from one address")                         \
    X(fabric_progress_timeout, DURATION, "1s", 10000000, 3600000000000,                            \
      "a peer that makes no progress for this time counts as dead")                                \
    X(fabric_encryption, BOOL, "true", 0, 1,                                                       \
      "tcp: TLS 1.3 between nodes; false: none with peers that also set false (trusted network)")  \
    X(fabric_pools, BOOL, "true", 0, 1,                                                            \
      "register engines' pools with the fabric, shared memory included; verbs pins them")          \
    X(cache_remote_loads, BOOL, "true", 0, 1,                                                      \
      "keep blocks that loads fetch from other nodes; false: copy them only into engines' pools")  \
    X(load_log, BOOL, "false", 0, 1, "log each load: its client, and where its blocks came from")  \
    X(metrics_listen, TEXT, "local", 3, 280,                                                       \
      "address of /metrics: HOST:PORT, local (metrics.http in runtime_dir, for this user), "       \
      "or off")                                                                                    \
    X(events_listen, TEXT, "off", 3, 280,                                                          \
      "address of published KV events: IP:PORT, local (events.pub in runtime_dir, for this "       \
      "user), or off")                                                                             \
    X(events_replay_listen, TEXT, "auto", 4, 280,                                                  \
      "address for replays of missed events: IP:PORT, local (events.replay), or auto: local, "     \
      "or the port after that of events_listen")                                                   \
    X(events_topic, TEXT, "", 0, 200, "topic of every published message")                          \
    X(events_model, TEXT, "", 0, 1023, "publish only blocks of this model; empty: of all models")  \
    X(events_hashes, TEXT, "int", 3, 5, "hashes as int, as the engines publish them, or bytes")    \
    X(events_form, TEXT, "map", 3, 6,                                                              \
      "encoding of events: map, as vLLM 0.32, models (more fields), or array")                     \
    X(events_block_size, COUNT, "0", 0, 1048576, "tokens per block in events; 0: unknown")         \
    X(events_rank, TEXT, "none", 1, 5, "data-parallel rank that events report: a number, or none") \
    X(events_queue, COUNT, "4096", 16, 4096,                                                       \
      "messages queued for a slow subscriber; further ones are dropped")                           \
    X(events_kept, COUNT, "10000", 1, 1000000,                                                     \
      "messages kept for replay to subscribers that missed them")                                  \
    X(directory, TEXT, "embedded", 5, 8,                                                           \
      "where nodes look up holders of keys: embedded (this node only) or redis")                   \
    X(directory_url, TEXT, "", 0, 1023,                                                            \
      "redis://[USER:PASSWORD@]IP:PORT[/DB] or unix:///PATH[?db=DB]; a password is refused "       \
      "on a command line")                                                                         \
    X(directory_password_file, TEXT, "", 0, 1023,                                                  \
      "file with the server's password; has precedence over directory_url")                        \
    X(directory_name, TEXT, "default", 1, 63, "name of the cluster: its keys' prefix in redis")    \
    X(directory_node_ttl, DURATION, "10s", 100000000, 3600000000000,                               \
      "a node that does not renew its record within this time is dropped")                         \
    X(directory_key_ttl, DURATION, "10min", 1000000000, 86400000000000,                            \
      "a holder that is not reported again within this time is forgotten")                         \
    X(directory_timeout, DURATION, "200ms", 1000000, 60000000000,                                  \
      "a server that does not reply within this time counts as unreachable")                       \
    X(directory_walk, DURATION, "200ms", 1000000, 60000000000,                                     \
      "pause between scans of the index for changes")                                              \
    X(node_name, TEXT, "", 0, 31,                                                                  \
      "name of the node among its peers and in the directory; empty: HOST, or HOST.INSTANCE")      \
    X(cluster_listen, TEXT, "", 0, 128, "HOST:PORT for requests from peers; empty: do not listen") \
    X(cluster_address, TEXT, "", 0, 127,                                                           \
      "IP:PORT of cluster_listen that the directory gives to peers; empty: the same")              \
    X(cluster_keys, TEXT, "", 0, 1023,                                                             \
      "directory with NODE.secret and the NAME.pub of every peer (sluicectl keygen)")              \
    X(cluster_plaintext, BOOL, "false", 0, 1, "no keys, no encryption between nodes: tests only")  \
    X(peers, TEXT, "", 0, 1023, "nodes to read from: NAME@HOST:PORT, ...; at most 64")             \
    X(peers_file, TEXT, "", 0, 1023,                                                               \
      "file with more peers, one NAME@IP:PORT per line, read again when it changes")               \
    X(peer_removes, BOOL, "false", 0, 1, "peers may remove objects on this node")                  \
    X(peer_heartbeat, DURATION, "500ms", 10000000, 60000000000,                                    \
      "interval between PEER_HELLO messages to a peer")                                            \
    X(peer_timeout, DURATION, "500ms", 1000000, 60000000000,                                       \
      "a peer that does not reply within this time has failed")                                    \
    X(peer_backoff, DURATION, "200ms", 1000000, 60000000000,                                       \
      "first pause before a failed peer is retried; doubles up to 32 times that")                  \
    X(peer_missing_ttl, DURATION, "500ms", 0, 3600000000000,                                       \
      "how long a peer is not asked again for a key that it did not have")                         \
    X(remote_pin_ttl, DURATION, "5s", 10000000, 3600000000000,                                     \
      "longest time that a peer may keep this node's bytes pinned")                                \
    X(fetch_bytes, SIZE, "16MiB", 65536, 17179869184,                                              \
      "bytes requested from a peer in one fetch batch")                                            \
    X(fetch_batches_max, COUNT, "8", 1, 64, "fetch batches in flight at once")                     \
    X(tickets_max, COUNT, "1024", 1, 65535, "tickets of direct hand-overs, in each direction")     \
    X(ticket_parts_max, COUNT, "16384", 1, 57344, "parts of all tickets, in each direction")       \
    X(handovers_max, COUNT, "4096", 1, 65536, "hand-overs from prefill to decode in progress")     \
    X(handover_wait, DURATION, "30s", 1000000, 3600000000000,                                      \
      "longest time in each step of a hand-over: announced, allocated, produced")                  \
    X(handover_read_wait, DURATION, "200ms", 100000000, 3600000000000,                             \
      "longest wait of a direct hand-over for decode")                                             \
    X(handover_pools_readable, BOOL, "false", 0, 1,                                                \
      "verbs: let peers read whole pools, for NICs that cannot limit reads")                       \
    X(handover_hold, DURATION, "30s", 1000000, 3600000000000,                                      \
      "how long blocks are held for a decode that does not load them")                             \
    X(handover_partial_ttl, DURATION, "10s", 1000000, 86400000000000,                              \
      "lifetime of an incomplete last block after its last hold")                                  \
    X(handover_fallback, BOOL, "true", 0, 1,                                                       \
      "a failed direct hand-over continues through storage; false: it is an error")                \
    X(handover_recompute, BOOL, "false", 0, 1,                                                     \
      "decode gets the available prefix and computes the rest; false: all blocks, or error 502")

/* X(name, words): the words that a TEXT setting accepts, each between spaces. */
#define SL_SETTING_CHOICES(X)                     \
    X(log_level, " error warn info debug trace ") \
    X(evict_policy, " density lru ")              \
    X(swap_kernels, " auto always never ")        \
    X(load_verify, " auto sample all off ")       \
    X(disk_admission, " all reuse second ")       \
    X(device, " auto cuda host ")                 \
    X(nic_by, " gpu rank ")                       \
    X(fabric, " off tcp verbs ")                  \
    X(events_hashes, " int bytes ")               \
    X(events_form, " map models array ")          \
    X(directory, " embedded redis ")

#define SL_SETTING_ENUM(name, kind, standard, low, high, help) SL_SET_##name,
enum sl_setting { SL_SETTING_TABLE(SL_SETTING_ENUM) SL_SETTING_COUNT_OF };

struct sl_config; /* opaque; read-only after loading, then any thread */

/* Gives *out, with all settings at their defaults. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_config_create(struct sl_config **out, struct sl_error *why);
void sl_config_destroy(struct sl_config **config);

/* Loads the config file (NULL: none), the environment and the command line; later ones override
 * earlier ones. The variables that engines' deployments use for the staging of disk reads are
 * weaker than all of them: VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO,
 * MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES and MOONCAKE_OFFLOAD_FILE_STORAGE_PATH. An option
 * `--config FILE` overrides `file`. argv[0] is skipped. On success *rest is the index of the first
 * argument that is not an option, or argc; if rest is NULL such an argument is an error. `--help`
 * and `--version` return SL_ERR_CANCELLED with the word in why->text. Errors: SL_ERR_CONFIG (names
 * source and value), SL_ERR_NOT_FOUND / SL_ERR_OS (file). */
sl_err sl_config_load(struct sl_config *config, const char *file, int argc, char **argv, int *rest,
                      struct sl_error *why);
/* Sets one setting from a text in command-line syntax; errors name the source ("test"). */
sl_err sl_config_set(struct sl_config *config, const char *name, const char *text,
                     const char *source, struct sl_error *why);

/* The settings file that was read; NULL: none. */
const char *sl_config_file(const struct sl_config *config);
/* Checks that no other user can write the settings file or, if it has a password, read it. The
 * programs of a node call this at start. Errors: those of sl_trust_read. */
sl_err sl_config_check_access(const struct sl_config *config, struct sl_error *why);

bool sl_config_bool(const struct sl_config *config, enum sl_setting setting);
uint64_t sl_config_u64(const struct sl_config *config, enum sl_setting setting); /* all but TEXT */
const char *sl_config_text(const struct sl_config *config, enum sl_setting setting);
/* Source of the value in force: "default", "FILE:LINE", "SLUICE_MEMORY", "--memory". */
const char *sl_config_source(const struct sl_config *config, enum sl_setting setting);
const char *sl_setting_name(enum sl_setting setting);
/* Finds the setting with this name of length bytes, dashes or underscores; false: none has it. */
bool sl_setting_find(const char *name, size_t length, enum sl_setting *out);
/* Fills why for a name that sl_setting_find does not know: "SOURCE: unknown KIND 'NAME'". If the
 * previous release had that setting, the text has the advice of the table of removed settings.
 * Returns SL_ERR_CONFIG. kind: "setting" or "option". */
sl_err sl_setting_unknown(const char *name, size_t length, const char *source, const char *kind,
                          struct sl_error *why);
/* Prints all settings with types, defaults and help. stream: a FILE *. */
void sl_config_print_help(void *stream);

#define SL_DISK_PATHS_MAX 8u /* directories of the disk tier, one tierer each */

/* Directories of the node, derived from instance, runtime_dir, shm_dir, log_dir and disk_path; not
 * created here. The runtime directory is /run/sluice/INSTANCE if systemd made it for this uid
 * (sl_service_dir), otherwise $XDG_RUNTIME_DIR or /tmp, followed by /sluice-UID/INSTANCE. Errors:
 * SL_ERR_CONFIG (bad instance name; a path too long for a socket; a relative path, also of record,
 * cluster_keys, peers_file and directory_password_file; in disk_path also an empty entry, a
 * duplicate, or more than SL_DISK_PATHS_MAX). */
struct sl_paths {
    char runtime_dir[1024];
    char shm_dir[1024];
    char log_dir[1040];
    uint32_t disk_count;                      /* 1..SL_DISK_PATHS_MAX */
    char disk_paths[SL_DISK_PATHS_MAX][1040]; /* in the order of the setting: tierer.0, tierer.1 */
};
sl_err sl_paths_from(const struct sl_config *config, struct sl_paths *out, struct sl_error *why);
/* Finds the runtime directory that systemd made for the node of this name. True: it exists in a
 * directory of root that no other user can write to; *owner is its uid. */
#define SL_SERVICE_BASE "/run/sluice"
bool sl_service_dir(const char *instance, char out[64], uint32_t *owner);
/* Entries of disk_path, empty ones included; 1 when it is not set. */
uint32_t sl_config_disk_count(const struct sl_config *config);
/* The kinds of disks, a row each: the prefix of an entry of disk_path ("NAME:", or nothing), and
 * the function that opens such a disk (runtime/disk/sl_disk.h). Each kind has a file of its own. */
#define SL_DISK_KINDS(X) X("", sl_disk_uring_open)
/* The directory of an entry of disk_path, without the prefix of its kind. */
const char *sl_disk_path_dir(const char *path);
/* The size limit of the index. Records take memory only when used, so a high limit costs nothing.
 * If it is not set it follows from memory and disk: values of 4 KiB need a tenth of their bytes. */
#define SL_INDEX_MEMORY_MIN (64 * SL_MIB)
uint64_t sl_config_index_memory(const struct sl_config *config);
/* Whether neither index_memory nor index_keys is set: an existing index then keeps its size. */
bool sl_config_index_is_derived(const struct sl_config *config);
/* Makes path and its parents, each new one with mode 0700. An existing last directory must belong
 * to this uid and be closed to others. Those above must belong to this uid or root, and others may
 * write to them only with the sticky bit. Links are not followed in a directory where every user
 * may create names. Errors: SL_ERR_PERMISSION, SL_ERR_FOREIGN, SL_ERR_INVALID (empty),
 * SL_ERR_OS. */
sl_err sl_dir_make(const char *path, struct sl_error *why);
/* Checks the same and makes nothing; others may read the last directory. Errors: also
 * SL_ERR_NOT_FOUND (there is none). */
sl_err sl_dir_check(const char *path, struct sl_error *why);
/* Makes path for data that may lie below directories of other users (a mounted disk). An existing
 * last directory must have none of the mode bits in `refused` (0077, 0022). Above it, only entries
 * of directories where others may create names must belong to this uid or root, links included; in
 * a directory that a group may write they may also belong to its owner. */
sl_err sl_dir_make_for(const char *path, uint32_t refused, struct sl_error *why);
/* Makes creations, renames and removals in the directory durable. Errors: SL_ERR_OS and kin. */
sl_err sl_dir_sync(const char *path, struct sl_error *why);
/* Bytes that the files directly in the directory take on disk; 0 also if it cannot be read. */
uint64_t sl_dir_used_bytes(const char *path);

#endif
