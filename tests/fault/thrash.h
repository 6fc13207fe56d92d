/* tests/fault/thrash.h - a node under load while its processes are killed, stopped and restarted.
 *
 * The driver (thrash.c) starts a node, object clients, engines and a probe, each a process of its
 * own (this program again, with --role). A seed decides which process is hit next and by what fault
 * (thrash_faults.c). Acknowledged operations are recorded in one shared file (thrash_history.c)
 * that no process owns, so a client may be killed between any two instructions: a put or remove
 * without an answer leaves its object "unknown" until a client reads it. */
#ifndef SL_THRASH_H
#define SL_THRASH_H

#include <stdatomic.h>
#include <sys/types.h>

#include "client/include/sluice.h"
#include "client/tools/bench/histogram.h"
#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_proc.h"
#include "tests/support/linear.h"

#define THRASH_CLIENTS_MAX 16u
#define THRASH_ENGINES_MAX 4u
#define THRASH_WORKERS_MAX (THRASH_CLIENTS_MAX + THRASH_ENGINES_MAX + 1u) /* and the probe */
#define THRASH_OBJECTS     24576u
#define THRASH_SHARED      1024u /* the first objects: put by all clients, removed by none */
#define THRASH_CHATS       4096u
#define THRASH_CHAT_BLOCKS 8u
#define THRASH_RANKS       2u
#define THRASH_POOLS       2u
#define THRASH_TOKENS      16u /* of a block */
#define THRASH_VALUE_BYTES (1536u * 1024u)
#define THRASH_NOTES       64u
#define THRASH_NOTE_BYTES  280u
/* An operation without an answer can take effect for this long after it ended and no longer: its
 * messages carry the budget that was left, and its process is dead or has moved on. */
#define THRASH_SETTLE_NS (3 * SL_NS_PER_S)

#define THRASH_CONTESTED       24u /* keys that all clients put, replace, remove and read */
#define THRASH_CONTESTED_BYTES (136u * 1024u)
#define THRASH_LOG_OPS         (UINT64_C(1) << 21) /* of a client: 64 MiB, used as needed */

/* ---- history ---- */

/* One object or block: word = version << 3 | phase. */
enum thrash_phase {
    THRASH_ABSENT,   /* never put, or its removal was acknowledged */
    THRASH_PUTTING,  /* a put of this version is in progress */
    THRASH_PRESENT,  /* acknowledged: must be found */
    THRASH_REMOVING, /* a removal is in progress */
    THRASH_UNKNOWN,  /* a put or removal ended without an answer */
};
struct thrash_object {
    _Atomic uint64_t word;
    _Atomic uint64_t clock;      /* bytes put by all clients when it was acknowledged */
    _Atomic uint64_t unknown_ns; /* since when */
};

/* Counters: X(name, whether it must be 0) */
#define THRASH_COUNTERS(X)                                                         \
    X(reads_verified, 0)                                                           \
    X(bytes_verified, 0)                                                           \
    X(blocks_verified, 0)                                                          \
    X(contested_reads, 0)  /* of the reads verified */                             \
    X(contested_moving, 0) /* of these, reads just after another client's write */ \
    X(contested_writes, 0) /* acknowledged */                                      \
    X(contest_unlogged, 1) /* not made: the log was full */                        \
    X(puts, 0)                                                                     \
    X(put_bytes, 0)                                                                \
    X(removes, 0)                                                                  \
    X(blocks_stored, 0)                                                            \
    X(looks, 0)                                                                    \
    X(pins_held, 0)                                                                \
    X(calls, 0)                                                                    \
    X(failed_calls, 0)                                                             \
    X(misses_of_evicted, 0)                                                        \
    X(lost, 1)         /* acknowledged, not evicted, never found again */          \
    X(false_misses, 1) /* not found although it was present */                     \
    X(wrong, 1)        /* bytes of another key or version, or of none */           \
    X(risen, 1)        /* found after its removal was acknowledged */              \
    X(touched, 1)      /* a device block was written after its op was fenced */    \
    X(late, 1)         /* calls that returned after deadline and margin */

enum thrash_counter {
#define THRASH_COUNTER_ENUM(name, zero) THRASH_##name,
    THRASH_COUNTERS(THRASH_COUNTER_ENUM)
#undef THRASH_COUNTER_ENUM
        THRASH_COUNTER_COUNT
};

enum thrash_role { THRASH_DRIVER, THRASH_CLIENT, THRASH_ENGINE, THRASH_PROBE };

/* Limits that the driver makes a client reach on purpose, chosen by the seed. */
enum thrash_squeeze {
    THRASH_NO_SQUEEZE,
    THRASH_PIN_ALL, /* pins up to the client's limit and keeps the pins for a second */
    THRASH_FLOOD,   /* a batch of the largest values */
};

/* The state of one worker slot, which a series of processes uses in turn. The worker writes it,
 * except for `stopped_ns` and `squeeze`. */
struct thrash_worker {
    _Atomic uint32_t pid;        /* 0: none runs */
    _Atomic uint64_t lives;      /* how many processes have used the slot */
    _Atomic uint64_t call_ns;    /* when its current call began; 0: it is in none */
    _Atomic uint64_t stopped_ns; /* total time for which the driver stopped it */
    _Atomic uint32_t squeeze;    /* enum thrash_squeeze */
    const char *call_name;       /* valid only in the worker's own process */
    _Atomic uint64_t counters[THRASH_COUNTER_COUNT];
    _Atomic uint64_t errors[SL_ERR_COUNT];
    _Atomic uint64_t longest_ns;
    char longest_name[24];
    struct ctl_histogram waits;
    /* the probe: begin and end of its last round in which everything worked */
    _Atomic uint64_t whole_from_ns, whole_until_ns;
};

/* Operations on contested keys and their answers (thrash_contest.c). */
enum thrash_op_state {
    THRASH_OP_OPEN,     /* in progress, or its caller was killed */
    THRASH_OP_DONE,     /* it had an answer */
    THRASH_OP_DOUBTFUL, /* no answer: it may still take effect for a while */
    THRASH_OP_VOID      /* had no effect and proves nothing */
};
struct thrash_logged {
    uint64_t call_ns, back_ns;
    uint32_t value;
    uint16_t key;
    uint8_t kind; /* enum linear_kind */
    _Atomic uint8_t state;
};
struct thrash_log {
    _Atomic uint64_t count;
    struct thrash_logged ops[THRASH_LOG_OPS];
};

struct thrash_shared {
    uint64_t seed;
    uint64_t started_ns, seconds;
    uint64_t timeout_ns, margin_ns;
    uint64_t put_budget_bytes; /* 0: no limit */
    uint64_t recent_bytes;     /* values among the last recent_bytes put must not be evicted */
    uint32_t clients, engines;
    bool strict; /* no value may be evicted from both memory and disk */
    _Atomic bool stop;
    _Atomic bool probe_wanted; /* without a pause: a worker waits for a whole node */
    _Atomic uint64_t clock;
    char events_path[1024]; /* every fault, and every call that failed */
    _Atomic uint64_t note_count;
    char notes[THRASH_NOTES][THRASH_NOTE_BYTES];
    struct thrash_worker workers[THRASH_WORKERS_MAX];
    struct thrash_object objects[THRASH_OBJECTS];
    struct thrash_object blocks[THRASH_CHATS * THRASH_CHAT_BLOCKS];
    _Atomic uint32_t contested_values[THRASH_CONTESTED]; /* the last one used */
    /* When a client last began a write, ns since started_ns, << 8 | its number. 0: never. */
    _Atomic uint64_t contested_moved[THRASH_CONTESTED];
    _Atomic uint64_t contested_clock;           /* the contested keys' share of `clock` */
    struct thrash_log logs[THRASH_CLIENTS_MAX]; /* sparse */
};

static inline uint64_t thrash_word(uint64_t version, enum thrash_phase phase)
{
    return version << 3 | (uint64_t)phase;
}
static inline uint64_t thrash_version(uint64_t word)
{
    return word >> 3;
}
static inline enum thrash_phase thrash_phase(uint64_t word)
{
    return (enum thrash_phase)(word & 7);
}

/* splitmix64: the same numbers for the same seed on every machine. */
struct thrash_random {
    uint64_t state;
};
uint64_t thrash_random(struct thrash_random *random);
uint64_t thrash_below(struct thrash_random *random, uint64_t limit); /* 0 .. limit - 1; limit > 0 */

sl_err thrash_shared_create(const char *path, struct thrash_shared **out, struct sl_error *why);
sl_err thrash_shared_open(const char *path, struct thrash_shared **out, struct sl_error *why);
uint64_t thrash_sum(const struct thrash_shared *shared, enum thrash_counter counter);
const char *thrash_counter_name(enum thrash_counter counter);
bool thrash_counter_must_be_zero(enum thrash_counter counter);

/* The key of an object, at most 32 bytes of text; length and bytes of one version of its value. */
struct sl_object_key thrash_key(uint32_t object, char text[32]);
uint64_t thrash_value_bytes(uint32_t object, uint64_t version);
void thrash_value_fill(uint32_t object, uint64_t version, uint64_t *value, uint64_t length_bytes);
/* Blocks of a chat: the first two are common to eight chats. Index into shared->blocks. */
uint32_t thrash_block(uint32_t chat, uint32_t number);
void thrash_tokens(uint32_t chat, uint32_t block_count, uint32_t *tokens);

/* ---- one worker process ---- */
struct thrash {
    struct thrash_shared *shared;
    struct thrash_worker *self;
    uint32_t number; /* among the workers of its role */
    struct thrash_random random;
    struct sl_client *client;
    uint64_t *scratch; /* THRASH_VALUE_BYTES: right bytes */
    uint64_t *value;   /* THRASH_VALUE_BYTES: bytes that were read */
    const char *const *settings;
};
struct thrash_call {
    uint64_t began_ns, stopped_ns;
    const char *name;
};

void thrash_count(struct thrash *thrash, enum thrash_counter counter, uint64_t amount);
/* Brackets every call into the library to measure its duration, which thrash_call_end returns. */
struct thrash_call thrash_call_begin(struct thrash *thrash, const char *name);
uint64_t thrash_call_end(struct thrash *thrash, struct thrash_call call, sl_err code,
                         uint64_t allowed_ns);
/* Reports a violation on stderr at once and again at the end of the run. */
void thrash_note(struct thrash_shared *shared, const char *format, ...) SL_PRINTF(2, 3);
/* One line in the run's log of events, with the time since its start. */
void thrash_event(const struct thrash_shared *shared, const char *format, ...) SL_PRINTF(2, 3);
/* Tries until the node accepts us or the run is over. */
bool thrash_attach(struct thrash *thrash);
/* Whether the rate limit allows a put of this size now; if so, counts it. */
bool thrash_may_put(struct thrash *thrash, uint64_t bytes);
void thrash_sleep_ns(uint64_t ns);

int thrash_client_main(struct thrash *thrash);
int thrash_engine_main(struct thrash *thrash);
int thrash_probe_main(struct thrash *thrash);

/* ---- contested keys, of one client (thrash_contest.c) ---- */
struct contest;
struct contest *thrash_contest_open(struct thrash *thrash); /* NULL: out of memory */
void thrash_contest_close(struct contest **contest);
void thrash_contest_burst(struct contest *contest); /* makes a few calls */
/* Whether contested keys have too small a share of all reads: other reads then wait. */
bool thrash_contest_lags(const struct thrash *thrash);

/* ---- judging what was read (thrash_check.c) ---- */
enum thrash_verdict { THRASH_FINE, THRASH_MISS, THRASH_BAD };
/* Judges one read of an object: `before` and `after` are its words around the call; bytes are NULL
 * if only its presence was checked. */
enum thrash_verdict thrash_judge(struct thrash *thrash, uint32_t object, uint64_t before,
                                 sl_err code, const void *bytes, uint64_t length_bytes,
                                 const char *how);

/* ---- engines, also of the probe and of the final check (thrash_engine.c) ---- */
struct thrash_engine;
struct thrash_engine *thrash_engine_open(struct thrash *thrash, const char *name,
                                         struct sl_error *why);
void thrash_engine_close(struct thrash_engine **engine);
/* Runs one operation over the first `blocks` blocks of a chat until it and its fence are over. */
sl_err thrash_engine_store(struct thrash_engine *engine, uint32_t chat, uint32_t blocks);
sl_err thrash_engine_load(struct thrash_engine *engine, uint32_t chat, uint32_t blocks);

#endif
