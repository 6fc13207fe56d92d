/* tests/support/pd/pd_engines.h - two engines, each a process, that hand requests over and check
 * every byte. Suites of hand-overs run them. */
#ifndef SL_TESTS_SUPPORT_PD_ENGINES_H
#define SL_TESTS_SUPPORT_PD_ENGINES_H

#include "client/tools/bench/histogram.h"
#include "client/tools/command/command.h"
#include "runtime/base/sl_clock.h"

#include <stdatomic.h>

#define PD_BLOCK_TOKENS    64u
#define PD_LAYERS_MAX      256u
#define PD_BLOCKS_MAX      256u /* of one request */
#define PD_CONCURRENCY_MAX 128u

struct pd_options {
    const char *mode, *key_format;
    uint64_t requests, seed, ranks, layers, block_bytes, blocks, concurrency, op_timeout_ns;
    bool kill_prefill, direct, by_layers;
    const char *prefill_instance, *decode_instance, *prefill_config, *decode_config;
};

/* Messages between the two sides over a channel of the engines' own, without Sluice. */
enum pd_message_kind { PD_ANNOUNCE, PD_FIRST_TOKEN, PD_FAILED, PD_CLOSE, PD_LAYER };
struct pd_message {
    enum pd_message_kind word;
    uint64_t number, id, trace_id;
    struct sl_transfer_params receipt;
    struct sl_ticket ticket; /* length 0: none */
};

/* Shared by the processes; each field has one writer. */
struct pd_report {
    _Atomic uint64_t progress; /* requests that have ended */
    _Atomic bool prefill_ready, decode_ready, prefill_killed;
    /* decode */
    uint64_t announced, complete, errors_502, errors_other, gone, recomputed, wrong_bytes,
        late_writes, partial_tails, blocks_loaded, from_memory, from_disk, from_remote, bytes,
        blocks_held, output_stored, output_failed;
    uint64_t layers_early; /* layers present and correct before the hand-over was complete */
    struct ctl_histogram handover_ns; /* from announced to loaded */
    char first_error[SL_ERROR_TEXT_BYTES];
    /* prefill */
    uint64_t sent, send_failed, loop_longest_ns;
    uint64_t layers_ahead; /* last layers computed after decode had the first */
    char send_error[SL_ERROR_TEXT_BYTES];
};

/* An engine on host memory. */
struct pd_engine {
    const struct pd_options *options;
    struct pd_report *report;
    struct sl_client *client;
    struct sl_engine *engine;
    struct sl_engine_layer layers[PD_LAYERS_MAX];
    uint64_t memory_bytes;
    uint32_t *free_blocks;
    uint32_t free_count, block_count;
    uint64_t *part; /* the right bytes of one part */
    int channel;
};
sl_err pd_engine_open(struct pd_engine *engine, const struct ctl *ctl, bool prefill,
                      struct sl_error *why);
void pd_engine_close(struct pd_engine *engine);
bool pd_blocks_take(struct pd_engine *engine, uint32_t *blocks, uint32_t count);
void pd_blocks_give(struct pd_engine *engine, const uint32_t *blocks, uint32_t count);
void pd_block_compute(struct pd_engine *engine, uint32_t block, uint64_t chain);
/* Computes one layer of it. */
void pd_layer_compute(struct pd_engine *engine, uint32_t block, uint64_t chain, uint32_t layer);
uint64_t pd_layer_wrong(struct pd_engine *engine, uint32_t block, uint64_t chain, uint32_t layer);
/* The number of bytes that differ from the chain's. */
uint64_t pd_block_wrong(struct pd_engine *engine, uint32_t block, uint64_t chain);
void pd_block_poison(struct pd_engine *engine, uint32_t block);
uint64_t pd_block_unpoisoned(struct pd_engine *engine, uint32_t block);
/* Sends or takes a message. False: none, or the channel is full, or the other side has ended. */
bool pd_send(const struct pd_engine *engine, const struct pd_message *message);
bool pd_receive(const struct pd_engine *engine, struct pd_message *message);
/* Waits a moment for a message. */
void pd_wait_message(const struct pd_engine *engine);

/* Request `number` of a run: the same on both sides. A third share their beginning. */
struct pd_request {
    uint32_t token_count, block_count; /* of the input; the last block may be incomplete */
    uint32_t tokens[(PD_BLOCKS_MAX + 1) * PD_BLOCK_TOKENS]; /* with space for the output */
    uint64_t chains[PD_BLOCKS_MAX + 1];
};
void pd_request_make(const struct pd_options *options, uint64_t number, struct pd_request *request);
/* Adds output tokens; returns the number of blocks that the request then has. */
uint32_t pd_request_decode(struct pd_request *request);

int pd_prefill_run(const struct ctl *ctl, const struct pd_options *options,
                   struct pd_report *report, int channel);
int pd_decode_run(const struct ctl *ctl, const struct pd_options *options, struct pd_report *report,
                  int channel);

#endif
