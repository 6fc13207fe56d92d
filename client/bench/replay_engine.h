/* client/bench/replay_engine.h - the parts of a replay: the engine it plays, and the report it
 * writes. */
#ifndef SL_CLIENT_BENCH_REPLAY_ENGINE_H
#define SL_CLIENT_BENCH_REPLAY_ENGINE_H

#include "client/bench/histogram.h"
#include "client/bench/replay_hints.h"
#include "client/bench/replay_trace.h"
#include "client/command/command.h"
#include "runtime/sl_clock.h"
#include "runtime/sl_metrics.h"

#define REPLAY_LAYERS_MAX    1024u
#define REPLAY_KINDS_MAX     32u
#define REPLAY_SLOWEST_MAX   10u
#define REPLAY_FAILED_MAX    64u
#define REPLAY_ASIDES_MAX    128u
#define REPLAY_MISMATCH_SAID 10u
#define REPLAY_SIDES_MAX     8u

struct replay_options {
    const char *trace_path, *key_format, *json_path;
    const char *also; /* config files of more nodes, separated by commas; NULL: none */
    uint64_t ranks, pools, layers, block_bytes, limit, device_blocks, op_timeout_ns;
    uint64_t published_ns; /* longest wait until the directory knows a request; 0: none */
    uint64_t first;        /* request to begin with */
    uint64_t window;       /* requests of a row of the report; 0: no rows */
    double speed;          /* 0: timestamps are ignored */
    bool progress;
    struct replay_hints_options hints;
    struct sl_prefill prefill; /* of the engine that is played; 0: it computes in no time */
    bool prefill_untold;       /* the node is not told */
    struct replay_pause_options pauses;
};

/* Errors of one kind: op and code; the text is that of the first. */
struct replay_kind {
    bool store;
    sl_err code;
    uint64_t count;
    char text[SL_ERROR_TEXT_BYTES];
};
struct replay_op_row {
    uint64_t trace_id, duration_ns;
    bool store;
    sl_err code;
};
/* What happened up to a request, and when. */
struct replay_window {
    uint64_t requests, block_references, hits, from_remote, unpublished, errors, at_ns;
};
struct replay_report {
    uint64_t unpublished; /* requests that the directory did not know in time */
    struct replay_window *windows;
    uint32_t window_count, window_room;
    uint64_t requests, skipped, block_references, hits, from_memory, from_disk, from_remote;
    uint64_t mismatches, errors, misses_of_acknowledged, evicted, lost, ops, ops_slow,
        longest_op_ns;
    uint64_t ends_told, goes_on_told; /* requests that said so */
    uint64_t pauses_told;
    uint64_t bytes_stored, bytes_loaded, blocks_stored, blocks_existed, blocks_not_stored;
    uint64_t wall_ns;
    uint64_t not_awaited;       /* blocks that loads left to be computed */
    double waited_s, compute_s; /* for loads, and what computing the rest would take */
    struct ctl_histogram load_ns, store_ns;
    struct replay_kind kinds[REPLAY_KINDS_MAX];
    uint32_t kind_count;
    struct replay_op_row slowest[REPLAY_SLOWEST_MAX]; /* slowest first */
    uint32_t slowest_count;
    struct replay_op_row failed[REPLAY_FAILED_MAX];
    uint32_t failed_count;
};

/* Blocks of an op that may still be touched: not to be used until it is fenced. */
struct replay_aside {
    struct sl_op *op;
    uint32_t *blocks;
    uint32_t count;
};

/* A node, with an engine of ours. Requests go to the nodes in turn. */
struct replay_side {
    const struct ctl *ctl;
    struct ctl own; /* what ctl points to, for a node of --also */
    char *config_file;
    struct sl_client *client;
    struct sl_engine *engine;
    struct sl_metrics *metrics;   /* own page: the ends of the ops as the engine saw them */
    struct sl_metrics_view *door; /* page of the node's transporter; NULL: not looked at yet */
    /* what the node acknowledged: a set of chains, open addressing, 0 is empty */
    uint64_t *known;
    uint64_t known_room, known_count;
};

struct replay {
    struct replay_options options;
    struct replay_side sides[REPLAY_SIDES_MAX], *side; /* side: of the request at hand */
    uint32_t side_count;
    struct replay_trace trace;
    struct replay_report report;
    /* one pool's memory */
    struct sl_engine_layer layers[REPLAY_LAYERS_MAX];
    uint64_t memory_bytes;
    /* device blocks */
    uint32_t *free_blocks;
    uint32_t free_count;
    struct replay_aside asides[REPLAY_ASIDES_MAX];
    uint32_t aside_count;
    /* of the request at hand */
    uint32_t *tokens, *blocks;
    uint64_t *chains;
    uint32_t token_count, block_count;
    struct sl_hints said;
    unsigned char *ends; /* request_count: which end a session; NULL: nothing is said of them */
    uint64_t *pauses;    /* request_count: of replay_pauses; NULL: likewise */
    uint64_t *part;      /* one part's right bytes */
};

/* ---- replay_engine.c ---- */
sl_err replay_engine_open(struct replay *replay, const struct ctl *ctl, struct sl_error *why);
void replay_engine_close(struct replay *replay);
/* Plays request `number`; what goes wrong is counted, never returned. */
void replay_request_play(struct replay *replay, uint64_t number);

/* ---- replay_sides.c ---- */
/* The node of ctl, and those of --also. */
sl_err replay_sides_read(struct replay *replay, const struct ctl *ctl, struct sl_error *why);
void replay_sides_free(struct replay *replay);
/* Waits until the directory knows all that the node at hand holds, if that is wanted. */
void replay_published_wait(struct replay *replay);

/* ---- replay_report.c ---- */
/* Ends a row of the report when it is time, and prints it. */
void replay_window_note(struct replay *replay, uint64_t started_ns, bool last);
void replay_note_op(struct replay *replay, const struct sl_op_result *result, bool store,
                    uint64_t duration_ns);
/* row: which op; its code is why's. */
void replay_note_failure(struct replay *replay, struct replay_op_row row,
                         const struct sl_error *why);
void replay_progress(struct replay *replay, uint64_t done, uint64_t started_ns, bool last);
json_t *replay_json(const struct replay *replay);

#endif
