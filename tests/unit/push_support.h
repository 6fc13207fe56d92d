/* tests/unit/push_support.h - a transporter with an engine's pools, for the tests of direct hand-over. The
 * registrar, the engine and the network are played by the test; bytes of another node are written by
 * it, too. Check assertions inside. */
#ifndef PUSH_SUPPORT_H
#define PUSH_SUPPORT_H

#include "actors/transporter/internal.h"
#include "actors/transporter/push/internal.h"
#include "actors/transporter/transporter.h"
#include "tests/support/fake_env.h"
#include "tests/support/fake_net.h"

#define ENGINE    7u
#define RANKS_MAX 2u
#define DECODE    "coordinator"
#define PREFILL   "prefiller.0"

struct push_bed {
    struct fake_env fake;
    struct fake_net net;
    struct transporter *self;
    uint32_t ranks;
    uint64_t memory_bytes, region_bytes_max; /* of each rank; 0: as large as it likes */
    int fds[RANKS_MAX];
    unsigned char *memory[RANKS_MAX];
    struct sl_item_pool pools[2];
    struct sl_item_region regions[8];
    uint64_t region_count;
    bool listed;
    unsigned char ticket[SL_TICKET_BYTES_MAX];
    uint64_t ticket_bytes;
};
extern struct push_bed bed;

/* Memory of the engine's ranks, zeroed; then the test says where its pools lie in it. */
void bed_begin(uint32_t ranks, uint64_t memory_bytes);
/* more: settings, or NULL. Returns when the engine is registered. */
void bed_open(const char *peers, const char *const *more);
void bed_close(void);
const struct push *push_of(void);
uint64_t metric(const char *name);
/* A turn, and what the registrar says in it. */
void tick(void);
void pass(uint64_t ns);

struct sl_item_spot spot_of(uint32_t rank, uint32_t pool, uint32_t block, uint64_t item);
struct sl_bytes ticket_bytes(void);
/* The answer to PUSH_OPEN: its ticket is that of the bed. */
void ticket_take(uint64_t seq);
uint64_t close_send(void);
void replied(const char *to, uint64_t seq, sl_err code, const char *text);
bool unanswered(const char *to, uint64_t seq);
/* Takes the next PUSH_ARRIVED; borrowed as fake_take's. */
struct sl_msg arrived(uint64_t state);
void arrived_answer(const struct sl_msg *msg, sl_err code);
void over(sl_err code, const char *text);
/* Nothing is left of any hand-over. */
void nothing_is_left(void);

/* ---- peers ---- */
void peer_greets(const char *name, uint64_t incarnation);
sl_err peer_shows(const char *name, uint64_t first_part, struct sl_msg *reply);
/* The peer says that it has written the piece (NULL: none). */
uint64_t peer_names(const char *name, uint64_t push, const struct sl_item_arrived *piece,
                    bool last);
void acknowledged(const char *name, uint64_t seq, sl_err code, const char *text);

#endif
