/* tests/unit/actors/coordinator/coordinator_support.h - a coordinator; the test plays all others.
 */
#ifndef COORDINATOR_SUPPORT_H
#define COORDINATOR_SUPPORT_H

#include "actors/coordinator/coordinator.h"
#include "ipc/shm/sl_index.h"
#include "ipc/shm/sl_pins.h"
#include "tests/support/fake_env.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL      "0123456789abcdef0123456789abcdef"
#define ENGINE_ID  UINT64_C(77)
#define RANKS      2u
#define PART_BYTES 4096u
#define BLOCKS_MAX 256u

static const struct sl_proc_id engine_proc = {.pid = 501, .start_time = 9};
static const struct sl_proc_id swapper_procs[RANKS] = {{.pid = 601, .start_time = 1},
                                                       {.pid = 602, .start_time = 1}};

struct bed {
    struct fake_env fake;
    struct sl_arena *arena;
    struct sl_index *index;
    uint64_t next_generation;
    uint32_t world; /* ranks of the engine; bed_make: RANKS */
};

void answer(struct bed *bed, const char *sender, const struct sl_msg *request, struct sl_msg reply);
struct sl_msg take(struct bed *bed, const char *to, uint32_t type);
bool sent(struct bed *bed, const char *to, uint32_t type);
void swapper_name(uint32_t rank, char name[16]);
void bed_greet(struct bed *bed);
void bed_open(struct bed *bed, const char *const *settings);
struct bed *bed_make(const char *const *settings);
/* Loads read straight into pools, and other nodes may have blocks that this one lacks. */
extern const char *const pool_load_settings[];
extern const struct sl_proc_id transporter_proc;
void transporter_greeted(struct bed *bed);
/* A bed of node "d" whose pools are registered with the fabric, with more settings; NULL: none. */
struct bed *direct_bed(const char *const *more);
struct bed *bed_straight(void);
void bed_end(struct bed *bed);
void answer_engine(struct bed *bed);
void answer_keys(struct bed *bed);
uint64_t op_send(struct bed *bed, uint32_t type, uint64_t op_id, uint32_t count);
uint64_t op_send_as(struct bed *bed, const char *client, uint32_t type, uint64_t op_id,
                    uint32_t count);
uint64_t op_begin(struct bed *bed, uint32_t type, uint64_t op_id, uint32_t count);
void answer_reserve(struct bed *bed, uint32_t block, sl_err code);
uint64_t answer_copy(struct bed *bed, uint32_t rank, uint64_t missing);
void answer_commit(struct bed *bed);
struct sl_msg reply_to(struct bed *bed, uint64_t seq);
void answer_fence(struct bed *bed, uint32_t rank, uint64_t op_id);
void index_put(struct bed *bed, uint32_t block, bool in_memory, uint64_t length_bytes);
void index_remove(struct bed *bed, uint32_t block); /* removes its parts */
uint32_t pins(struct bed *bed);

#endif
