/* runtime/base/sl_config.h - settings: one table, four sources, strict types.
 *
 * A value comes from, in rising order: the default in the table, the config file, the environment
 * (SLUICE_NAME, upper case), the command line (--name VALUE or --name=VALUE; `-` and `_` are the
 * same). A value is written alike in all of them: blanks around it go, one in quotes is what is in
 * them. The file has `name = value`; comments begin with # at the start of a line or behind a
 * blank. Unknown name, wrong type and out of range are SL_ERR_CONFIG, and the text names the
 * source: file and line, variable, or option. Empty text is an error for everything but strings. */
#ifndef SL_CONFIG_H
#define SL_CONFIG_H

#include "runtime/base/sl_error.h"

enum sl_setting_kind {
    SL_SETTING_BOOL,     /* true false yes no on off 1 0; anything else ("flase") is an error */
    SL_SETTING_COUNT,    /* decimal integer */
    SL_SETTING_SIZE,     /* bytes, as sl_parse_size */
    SL_SETTING_DURATION, /* ns: integer or decimal with ns us ms s min h; a unit is required but for
                            0 */
    SL_SETTING_RATIO,    /* 0..1 as decimal; kept as parts per million in u64 */
    SL_SETTING_TEXT,     /* at most SL_SETTING_TEXT_BYTES_MAX bytes */
};
#define SL_SETTING_TEXT_BYTES_MAX 1023u

/* X(name, KIND, default text, min, max, help). For TEXT max is the longest length. */
#define SL_SETTING_TABLE(X)                                                                       \
    X(instance, TEXT, "default", 1, 40, "name of the node on this machine: [a-z0-9-]")            \
    X(runtime_dir, TEXT, "", 0, 1023, "sockets and logs; empty: chosen by uid and instance")      \
    X(shm_dir, TEXT, "", 0, 1023, "shared memory; empty: /dev/shm/sluice-UID/INSTANCE")           \
    X(log_dir, TEXT, "", 0, 1023, "log files; empty: RUNTIME_DIR/log")                            \
    X(log_level, TEXT, "info", 4, 5, "error, warn, info, debug or trace")                         \
    X(log_bytes_max, SIZE, "32MiB", 65536, 1099511627776,                                         \
      "bytes of an actor's logs: at half of it ACTOR.jsonl becomes ACTOR.jsonl.1")                \
    X(ranks, COUNT, "1", 1, 64, "tensor-parallel ranks: one swapper each")                        \
    X(rank, COUNT, "0", 0, 63, "rank of a swapper, place of a tierer's disk; of others 0")        \
    X(priority, COUNT, "10", 0, 20,                                                               \
      "nice levels by which actors go before others, where allowed; 0: none")                     \
    X(memory, SIZE, "1GiB", 1048576, 17592186044416,                                              \
      "ceiling of the arena; unset: less where less is left")                                     \
    X(memory_chunk, SIZE, "1GiB", 1048576, 1073741824, "largest chunk; no value may be larger")   \
    X(index_memory, SIZE, "0", 0, 1099511627776,                                                  \
      "ceiling of the index; 0: memory/8 + disk/16 (at most memory or 1 GiB), at least 64 MiB")   \
    X(index_keys, COUNT, "0", 0, 1000000000,                                                      \
      "keys the hash table is sized for; 0: from index_memory")                                   \
    X(populate_threads, COUNT, "2", 1, 64, "threads that prefault the arena while it serves")     \
    X(disk, SIZE, "0", 0, 1125899906842624,                                                       \
      "byte ceiling of the disk tier, all its paths together; 0: no disk tier")                   \
    X(disk_path, TEXT, "", 0, 1023,                                                               \
      "directories of the disk tier, one a disk, separated by commas; empty: RUNTIME_DIR/disk")   \
    X(disk_segment, SIZE, "64MiB", 1048576, 1073741824,                                           \
      "size of one segment file; larger where a disk would have over 8,000 of them")              \
    X(disk_queue_depth, COUNT, "32", 1, 1024, "io_uring requests in flight")                      \
    X(disk_direct, BOOL, "true", 0, 1, "O_DIRECT where the file system has it")                   \
    X(disk_staging, SIZE, "64MiB", 1048576, 17179869184, "size of the buffer for disk reads")     \
    X(disk_staging_usable, RATIO, "0.9", 0, 1000000, "usable share of the staging")               \
    X(disk_prefetch, SIZE, "8MiB", 4096, 17179869184,                                             \
      "bytes a disk reads ahead of use at a time; a larger value is read alone")                  \
    X(prefetch_sessions, COUNT, "4096", 0, 1048576,                                               \
      "sessions whose blocks come back from disk before they are wanted; 0: of none")             \
    X(disk_admission, TEXT, "all", 3, 6,                                                          \
      "what goes to disk: all, reuse (likely to be wanted again) or second (wanted twice)")       \
    X(disk_admission_min, RATIO, "0.15", 0, 1000000,                                              \
      "disk_admission reuse: how likely at least, while it would be on disk")                     \
    X(disk_write_budget, SIZE, "0", 0, 1125899906842624,                                          \
      "bytes a day that may be written to each disk, saved up for a day; 0: no limit")            \
    X(op_timeout, DURATION, "2s", 1000000, 3600000000000, "deadline of an op that names none")    \
    X(reservation_ttl, DURATION, "2s", 1000000, 3600000000000,                                    \
      "how long a reservation is kept for its owner")                                             \
    X(lease_ttl, DURATION, "0", 0, 86400000000000,                                                \
      "how long a look-up of a client with leases keeps what it finds; 0: no leases")             \
    X(block_lease, DURATION, "5s", 0, 3600000000000,                                              \
      "longest that a look-up of blocks keeps them from being evicted; 0: they may go at once")   \
    X(soft_pin_max, DURATION, "24h", 0, 31536000000000000,                                        \
      "longest soft pin that a put may ask for")                                                  \
    X(fence_timeout, DURATION, "1s", 1000000, 60000000000,                                        \
      "an actor that acknowledges no fence for so long is killed")                                \
    X(io_grace, DURATION, "30s", 0, 3600000000000,                                                \
      "quarantine after the death of a process with disk i/o in flight")                          \
    X(call_retry, DURATION, "100ms", 1000000, 10000000000,                                        \
      "resend an unanswered idempotent request after")                                            \
    X(heartbeat, DURATION, "500ms", 10000000, 60000000000,                                        \
      "an actor says hello to the registrar this often")                                          \
    X(reservations_max, COUNT, "65536", 16, 16777216, "live reservations of all owners")          \
    X(grants_ahead_max, COUNT, "64", 0, 65536,                                                    \
      "extents granted to one client in advance; 0: none")                                        \
    X(clients_max, COUNT, "256", 1, 65535, "attached processes, actors included")                 \
    X(client_pins_max, COUNT, "8192", 16, 1048576, "pin slots of one client")                     \
    X(engines_max, COUNT, "64", 1, 1024, "registered engines; of a team each rank")               \
    X(pools_max, COUNT, "512", 1, 65536, "pools of the table of pools: ranks times pools")        \
    X(quarantine_bytes_max, SIZE, "0", 0, 17592186044416,                                         \
      "quarantined bytes an owner may cause; 0: 1/4 of memory")                                   \
    X(ghosts_max, COUNT, "65536", 0, 16777216, "remembered evictions and refusals, for explain")  \
    X(evict_policy, TEXT, "density", 3, 7,                                                        \
      "what leaves memory first: density (earns least, learnt) or lru (used longest ago)")        \
    X(record, TEXT, "", 0, 1023,                                                                  \
      "file where the registrar records requests, for python -m sluice.advise; empty: none")      \
    X(record_max, SIZE, "256MiB", 65536, 1099511627776, "its largest size; then it ends")         \
    X(evict_batch, COUNT, "64", 1, 65536, "blocks evicted for one scan of the pins")              \
    X(evict_watermark, RATIO, "1", 0, 1000000,                                                    \
      "share of memory in use above which values are evicted ahead of need; 1: only when needed") \
    X(evict_ratio, RATIO, "0.05", 0, 1000000, "how far below evict_watermark it goes then")       \
    X(contributions, BOOL, "false", 0, 1,                                                         \
      "values may take what processes contribute, at most memory; false: all of memory")          \
    X(put_preempt, DURATION, "30s", 0, 31536000000000000,                                         \
      "a writer may take a key over that another has been writing for so long; 0: never")         \
    X(put_release, DURATION, "600s", 1000000, 31536000000000000,                                  \
      "how long a put session may stay open; then its memory is free again")                      \
    X(queue_messages, COUNT, "1024", 16, 65536, "requests of a kind that wait in an actor")       \
    X(queue_spin, DURATION, "100us", 0, 10000000,                                                 \
      "longest wait awake for a queue, while cores are left over; 0: sleep at once")              \
    X(message_bytes_max, SIZE, "32MiB", 65536, 1073741824, "largest message")                     \
    X(swap_staging, SIZE, "32MiB", 65536, 17179869184, "staging of one swapper, two halves")      \
    X(swap_multiprocessors, COUNT, "8", 0, 1024,                                                  \
      "GPU multiprocessors that a kernel of ours may use; 0: all")                                \
    X(swap_kernels, TEXT, "auto", 4, 6,                                                           \
      "kernels beside an engine that computes: always, never, auto: where there is MPS")          \
    X(swap_rate, SIZE, "0", 0, 1125899906842624,                                                  \
      "bytes a second that a swapper copies, so that others have the bus too; 0: no limit")       \
    X(load_verify, TEXT, "auto", 3, 6,                                                            \
      "what of a load is digested again on its device: all, sample (1 byte of 32), off, or auto:" \
      " all where the GPU does it in under 5 %, else sample")                                     \
    X(swap_measure, BOOL, "true", 0, 1, "measure once which way of copying is fastest on a GPU")  \
    X(device, TEXT, "host", 4, 4, "device back end: host, cuda, or auto: cuda where it can run")  \
    X(trace_events, COUNT, "65536", 64, 16777216, "events the flight recorder of an actor keeps") \
    X(nic, TEXT, "", 0, 1023,                                                                     \
      "RDMA devices: one for all ranks, a comma list (nic_by), or auto: nearest to each GPU")     \
    X(nic_by, TEXT, "gpu", 3, 4,                                                                  \
      "a list of several goes by gpu (physical index) or by rank (rank modulo entries)")          \
    X(mr_bytes_max, SIZE, "0", 0, 1099511627776,                                                  \
      "largest memory region; 0: MC_MAX_MR_SIZE or 4 GiB")                                        \
    X(fabric, TEXT, "off", 3, 5, "what carries bytes between nodes: off, tcp or verbs")           \
    X(fabric_address, TEXT, "", 0, 1023,                                                          \
      "tcp: IP or IP:PORT to listen at, several by commas (rails); empty: nowhere")               \
    X(fabric_lanes, COUNT, "4", 1, 16, "connections or queue pairs of a peer")                    \
    X(fabric_depth, COUNT, "16", 1, 64, "requests in flight on a lane")                           \
    X(fabric_unit, SIZE, "1MiB", 16384, 4194304, "largest request; whole 16 KiB")                 \
    X(fabric_movers, COUNT, "4", 0, 16,                                                           \
      "tcp: threads that copy and digest, at most half of the cores (2 of 2); 0: none")           \
    X(fabric_connections_max, COUNT, "512", 1, 65535,                                             \
      "tcp: incoming connections; cluster_listen: those that nothing was heard of")               \
    X(fabric_strangers, COUNT, "64", 1, 65535,                                                    \
      "tcp, cluster_listen: connections of one address that have not greeted")                    \
    X(fabric_stall, DURATION, "1s", 10000000, 3600000000000,                                      \
      "a peer without any progress for so long is dead")                                          \
    X(fabric_encryption, BOOL, "true", 0, 1,                                                      \
      "tcp: TLS 1.3 between nodes; false: none with peers that are set so, too (a trusted "       \
      "wire)")                                                                                    \
    X(fabric_pools, BOOL, "true", 0, 1,                                                           \
      "register engines' pools too, those of shared memory: with verbs they are pinned")          \
    X(load_keeps, BOOL, "true", 0, 1,                                                             \
      "keep what loads bring from other nodes; false: it goes straight into engines' pools")      \
    X(load_log, BOOL, "false", 0, 1,                                                              \
      "a line in the log for each load: who asked, and from where its blocks came")               \
    X(metrics_listen, TEXT, "local", 3, 280,                                                      \
      "where /metrics is: HOST:PORT, local (metrics.http in runtime_dir, for this user), or off") \
    X(events_listen, TEXT, "off", 3, 280,                                                         \
      "where KV events are published: IP:PORT, local (events.pub in runtime_dir, for this "       \
      "user), or off")                                                                            \
    X(events_replay_listen, TEXT, "auto", 4, 280,                                                 \
      "where missed ones are asked for: IP:PORT, local (events.replay), or auto: local, or "      \
      "the port behind that of events_listen")                                                    \
    X(events_topic, TEXT, "", 0, 200, "topic of every message")                                   \
    X(events_model, TEXT, "", 0, 1023, "blocks of this model alone; empty: of all")               \
    X(events_hashes, TEXT, "int", 3, 5, "hashes as int, as the engines publish them, or bytes")   \
    X(events_form, TEXT, "map", 3, 6, "events as map, as of vLLM 0.32, models (more), or array")  \
    X(events_block_size, COUNT, "0", 0, 1048576, "tokens of a block, as told; 0: not known")      \
    X(events_rank, TEXT, "none", 1, 5, "data-parallel rank, as told: a number, or none")          \
    X(events_queue, COUNT, "4096", 16, 4096,                                                      \
      "messages kept for a subscriber that does not take them; more are dropped")                 \
    X(events_kept, COUNT, "10000", 1, 1000000, "messages kept for who asks for missed ones")      \
    X(directory, TEXT, "embedded", 5, 8, "who holds what: embedded (this node alone) or redis")   \
    X(directory_url, TEXT, "", 0, 1023,                                                           \
      "redis://[USER:PASSWORD@]IP:PORT[/DB] or unix:///PATH[?db=DB]; no password here on a "      \
      "command line")                                                                             \
    X(directory_password_file, TEXT, "", 0, 1023, "file with its password; wins over the url")    \
    X(directory_name, TEXT, "default", 1, 63, "name of the cluster: its keys' prefix in redis")   \
    X(directory_node_ttl, DURATION, "10s", 100000000, 3600000000000,                              \
      "a node whose record is not renewed for so long is gone")                                   \
    X(directory_key_ttl, DURATION, "10min", 1000000000, 86400000000000,                           \
      "a holder that is not told again for so long is forgotten")                                 \
    X(directory_timeout, DURATION, "200ms", 1000000, 60000000000,                                 \
      "a server that answers nothing for so long is away")                                        \
    X(directory_walk, DURATION, "200ms", 1000000, 60000000000,                                    \
      "pause between two looks at what changed in the index")                                     \
    X(node_name, TEXT, "", 0, 31,                                                                 \
      "name of the node among its peers and in the directory; empty: HOST, or HOST.INSTANCE")     \
    X(cluster_listen, TEXT, "", 0, 128, "HOST:PORT at which peers may ask; empty: nowhere")       \
    X(cluster_address, TEXT, "", 0, 127,                                                          \
      "IP:PORT of it that the directory tells others; empty: cluster_listen")                     \
    X(cluster_keys, TEXT, "", 0, 1023,                                                            \
      "directory with NODE.secret and the NAME.pub of every peer (sluicectl keygen)")             \
    X(cluster_plaintext, BOOL, "false", 0, 1, "no keys, no encryption between nodes: tests only") \
    X(peers, TEXT, "", 0, 1023, "nodes to read from: NAME@HOST:PORT, ...; at most 64")            \
    X(peers_file, TEXT, "", 0, 1023,                                                              \
      "file with more of them, NAME@IP:PORT a line, read again when it changes")                  \
    X(peer_removes, BOOL, "false", 0, 1, "peers may remove objects here")                         \
    X(peer_heartbeat, DURATION, "500ms", 10000000, 60000000000, "a peer is greeted this often")   \
    X(peer_timeout, DURATION, "500ms", 1000000, 60000000000,                                      \
      "a peer that answers nothing for so long has failed")                                       \
    X(peer_backoff, DURATION, "200ms", 1000000, 60000000000,                                      \
      "first pause of a peer that failed; doubles up to 32 times that")                           \
    X(peer_missing_ttl, DURATION, "500ms", 0, 3600000000000,                                      \
      "how long a peer is not asked again for a key it did not have")                             \
    X(remote_pin_ttl, DURATION, "5s", 10000000, 3600000000000,                                    \
      "longest time a peer may keep bytes of ours pinned")                                        \
    X(fetch_bytes, SIZE, "16MiB", 65536, 17179869184, "bytes asked of a peer at once")            \
    X(fetch_trips_max, COUNT, "8", 1, 64, "such requests on their way at once")                   \
    X(tickets_max, COUNT, "1024", 1, 65535, "tickets of direct hand-overs, each way")             \
    X(ticket_parts_max, COUNT, "16384", 1, 57344, "parts of all of them, each way")               \
    X(handovers_max, COUNT, "4096", 1, 65536, "hand-overs from prefill to decode at a time")      \
    X(handover_wait, DURATION, "30s", 1000000, 3600000000000,                                     \
      "longest time a hand-over is announced, allocated or produced, each")                       \
    X(handover_read_wait, DURATION, "200ms", 100000000, 3600000000000, "wait for decode to read") \
    X(handover_pools_readable, BOOL, "false", 0, 1, "verbs: a NIC lets peers read whole pools")   \
    X(handover_hold, DURATION, "30s", 1000000, 3600000000000,                                     \
      "how long blocks are held for a decode that does not come")                                 \
    X(handover_partial_ttl, DURATION, "10s", 1000000, 86400000000000,                             \
      "time to live of an incomplete last block, once nothing holds it")                          \
    X(handover_fallback, BOOL, "true", 0, 1,                                                      \
      "a direct hand-over that fails goes on through storage; false: it is an error")             \
    X(handover_recompute, BOOL, "false", 0, 1,                                                    \
      "decode gets the prefix that is there and computes the rest; false: all or error 502")

/* X(name, words): all that a TEXT may be, one behind the other, each between spaces. */
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

/* Gives *out all defaults. Errors: SL_ERR_NO_MEMORY. */
sl_err sl_config_create(struct sl_config **out, struct sl_error *why);
void sl_config_destroy(struct sl_config **config);

/* Loads config file (NULL: none), environment and command line, in that order of rising strength.
 * Weaker than all of them are the names that engines' deployments use for the staging of disk
 * reads: VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO, MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES and
 * MOONCAKE_OFFLOAD_FILE_STORAGE_PATH.
 * A `--config FILE` among the arguments wins over file. argv[0] is skipped; on success *rest (may
 * be NULL) is the index of the first argument that is no option, argc when there is none; with rest
 * NULL such an argument is an error. `--help` and `--version` are left to the caller: they give
 * SL_ERR_CANCELLED with the word in why->text.
 * Errors: SL_ERR_CONFIG (names source and value), SL_ERR_NOT_FOUND / SL_ERR_OS (file). */
sl_err sl_config_load(struct sl_config *config, const char *file, int argc, char **argv, int *rest,
                      struct sl_error *why);
/* Sets one setting from text as a command line has it; source is named in errors ("test"). */
sl_err sl_config_set(struct sl_config *config, const char *name, const char *text,
                     const char *source, struct sl_error *why);

/* The settings file; NULL: none was read. */
const char *sl_config_file(const struct sl_config *config);
/* Whether nobody else can write it or, with a password in it, read it: of programs of a node, when
 * they begin. Errors: those of sl_trust_read. */
sl_err sl_config_closed(const struct sl_config *config, struct sl_error *why);

bool sl_config_bool(const struct sl_config *config, enum sl_setting setting);
uint64_t sl_config_u64(const struct sl_config *config, enum sl_setting setting); /* all but TEXT */
const char *sl_config_text(const struct sl_config *config, enum sl_setting setting);
/* Where the value in force came from: "default", "FILE:LINE", "SLUICE_MEMORY", "--memory". */
const char *sl_config_source(const struct sl_config *config, enum sl_setting setting);
const char *sl_setting_name(enum sl_setting setting);
/* The setting of that name, length bytes, dashes or underscores; false: there is none. */
bool sl_setting_find(const char *name, size_t length, enum sl_setting *out);
/* The error for a name that sl_setting_find does not know: "SOURCE: unknown KIND 'NAME'". If the
 * release before had a setting of that name, the text gives the advice of the table of removed
 * settings. Gives SL_ERR_CONFIG. kind: "setting" or "option". */
sl_err sl_setting_refuse(const char *name, size_t length, const char *source, const char *kind,
                         struct sl_error *why);
/* Prints all settings as help text with kinds, ranges and defaults. stream: a FILE *. */
void sl_config_print_help(void *stream);

#define SL_DISK_PATHS_MAX 8u /* directories of the disk tier, one tierer each */

/* Derived places of the node: filled from instance, runtime_dir, shm_dir, log_dir, disk_path. The
 * directories are not created here. Errors: SL_ERR_CONFIG (bad instance name, a relative path, also
 * of record, cluster_keys, peers_file and directory_password_file, a path too long for a socket; of
 * disk_path also an empty entry, one that stands twice, more than SL_DISK_PATHS_MAX). Runtime
 * directory: /run/sluice/INSTANCE where the system keeps one for this uid (sl_service_dir), else
 * $XDG_RUNTIME_DIR or /tmp, then /sluice-UID/INSTANCE. */
struct sl_paths {
    char runtime_dir[1024];
    char shm_dir[1024];
    char log_dir[1040];
    uint32_t disk_count;                      /* 1..SL_DISK_PATHS_MAX */
    char disk_paths[SL_DISK_PATHS_MAX][1040]; /* in the order of the setting: tierer.0, tierer.1 */
};
sl_err sl_paths_from(const struct sl_config *config, struct sl_paths *out, struct sl_error *why);
/* The runtime directory that the system's units give to the node of that name: whether there is
 * one, in a directory of root's that nobody else can write to, and whose it is. */
#define SL_SERVICE_BASE "/run/sluice"
bool sl_service_dir(const char *instance, char out[64], uint32_t *owner);
/* Entries of disk_path, empty ones included; 1 when it is not set. */
uint32_t sl_config_disk_count(const struct sl_config *config);
/* The kinds of disks, a row each: what stands before the directory in an entry of disk_path
 * ("NAME:", or nothing), and the function that opens such a disk (runtime/disk/sl_disk.h), in a
 * file of its own. */
#define SL_DISK_KINDS(X) X("", sl_disk_uring_open)
/* The directory of an entry of disk_path: what comes after its kind (SL_DISK_KINDS), if it names
 * one. */
const char *sl_disk_path_dir(const char *path);
/* The ceiling of the index. A ceiling, not a cost: records are sparse until used. Where none is set
 * it follows from memory and disk, since values of 4 KiB want a tenth of their bytes. */
#define SL_INDEX_MEMORY_MIN (64 * SL_MIB)
uint64_t sl_config_index_memory(const struct sl_config *config);
/* Neither its size nor its keys are set: an index that exists keeps its own. */
bool sl_config_index_is_derived(const struct sl_config *config);
/* Makes path and its parents, each new one 0700; an existing last directory must belong to this uid
 * and be closed to others, and each one above it to this uid or root, without others who may write
 * there unless it has the sticky bit. In a directory in which everybody may make names no link is
 * followed. Errors: SL_ERR_PERMISSION, SL_ERR_FOREIGN, SL_ERR_INVALID (empty), SL_ERR_OS. */
sl_err sl_dir_make(const char *path, struct sl_error *why);
/* The same without making anything; others may read the last directory. Errors: also
 * SL_ERR_NOT_FOUND (there is none). */
sl_err sl_dir_check(const char *path, struct sl_error *why);
/* Makes path for data that may lie below other users' directories (a mounted disk): an existing
 * last directory must have none of the bits of refused (0077, 0022). Above it, only what lies where
 * others may make names must belong to this uid or root, links included; in a directory of a group
 * also to the directory's owner. */
sl_err sl_dir_make_for(const char *path, uint32_t refused, struct sl_error *why);
/* What was made, renamed or removed in the directory is durable. Errors: SL_ERR_OS and kin. */
sl_err sl_dir_sync(const char *path, struct sl_error *why);
/* Bytes that the files directly in the directory take of their device; 0 also when it cannot be
 * read. */
uint64_t sl_dir_used_bytes(const char *path);

#endif
