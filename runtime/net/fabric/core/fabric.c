/* runtime/net/fabric/core/fabric.c - opens, steps and closes a fabric, for every back end. */
#include "runtime/net/fabric/core/movers.h"
#include "runtime/net/fabric/core/tables.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void sl_fabric_step(struct sl_fabric *fabric, uint64_t now_ns)
{
    fabric->now_ns = now_ns;
    fabric->work_due = false;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        struct fabric_rail *rail = fabric->rails[i];
        rail->now_ns = now_ns;
        rail->work_due = false;
        fabric->ops->step(rail);
    }
    fabric_deadlines_step(fabric);
    fabric_memories_step(fabric);
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        fabric_peers_step(fabric->rails[i]);
    }
    fabric_links_report(fabric);
    fabric_grants_report(fabric);
    fabric_transfers_report(fabric);
    for (uint32_t i = 0; i < fabric->rail_count && fabric->ops->flush != NULL; i++) {
        fabric->ops->flush(fabric->rails[i]);
    }
}

static uint64_t rail_wake_at(const struct fabric_rail *rail)
{
    const struct fabric_backend *ops = rail->fabric->ops;
    if (rail->work_due) {
        return 0;
    }
    uint64_t at_ns = ops->wake_at != NULL ? ops->wake_at(rail) : SL_NEVER_NS;
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        const struct fabric_peer *peer = &rail->peers[i];
        if (peer->state == PEER_STARTING || peer->state == PEER_WAITING) {
            at_ns = SL_MIN(at_ns, peer->due_ns);
        }
    }
    return at_ns;
}

uint64_t sl_fabric_wake_at(const struct sl_fabric *fabric)
{
    if (fabric->work_due || fabric->ended_head != FABRIC_NONE || fabric->grants_gone > 0) {
        return 0;
    }
    uint64_t at_ns = fabric->deadline_ns;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        at_ns = SL_MIN(at_ns, rail_wake_at(fabric->rails[i]));
    }
    return at_ns;
}

int sl_fabric_fd(const struct sl_fabric *fabric)
{
    return fabric->fd;
}

void sl_fabric_stats(const struct sl_fabric *fabric, struct sl_fabric_stats *out)
{
    uint64_t sum[sizeof(*out) / sizeof(uint64_t)] = {0}, one[SL_COUNT(sum)];
    static_assert(sizeof(*out) % sizeof(uint64_t) == 0, "stats contain only numbers of 8 bytes");
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        memcpy(one, &fabric->rails[i]->stats, sizeof(one));
        for (size_t k = 0; k < SL_COUNT(sum); k++) {
            sum[k] += one[k];
        }
    }
    memcpy(out, sum, sizeof(*out));
}

const char *sl_fabric_about(const struct sl_fabric *fabric)
{
    return fabric->about;
}

/* ---- life ---- */

void sl_fabric_options_init(struct sl_fabric_options *options, const char *kind)
{
    *options = (struct sl_fabric_options){
        .kind = kind,
        .address = "",
        .nic = "",
        .gid_index = -1,
        .lanes = 4,
        .depth = 16,
        .peers_max = 64,
        .memories_max = 64,
        .grants_max = 4096,
        .keys_max = 4096,
        .transfers_max = 1024,
        .pieces_max = 16384,
        .places_max = 65536,
        .connections_max = 512,
        .unauthenticated_max = 64,
        .handshake_ns = SL_NS_PER_S,
        .movers = sl_movers_count(4),
        .unit_bytes = SL_MIB,
        .region_bytes_max = SL_MR_BYTES_STANDARD,
        .stall_ns = SL_NS_PER_S,
        .connect_ns = SL_NS_PER_S,
        .backoff_min_ns = 50 * SL_NS_PER_MS,
        .backoff_max_ns = 2 * SL_NS_PER_S,
    };
}

static bool in_range(uint64_t value, uint64_t low, uint64_t high)
{
    return value >= low && value <= high;
}

static sl_err options_check(const struct sl_fabric_options *options, struct sl_error *why)
{
    const struct {
        const char *name;
        uint64_t value, low, high;
    } bounds[] = {
        {"lanes", options->lanes, 1, SL_FABRIC_LANES_MAX},
        {"depth", options->depth, 1, SL_FABRIC_DEPTH_MAX},
        {"peers_max", options->peers_max, 1, SL_FABRIC_SLOTS_MAX},
        {"memories_max", options->memories_max, 1, SL_FABRIC_SLOTS_MAX},
        {"grants_max", options->grants_max, 1, SL_FABRIC_SLOTS_MAX},
        {"keys_max", options->keys_max, 1, SL_FABRIC_SLOTS_MAX},
        {"transfers_max", options->transfers_max, 1, SL_FABRIC_SLOTS_MAX},
        {"pieces_max", options->pieces_max, 1, 1u << 24},
        {"places_max", options->places_max, 0, 1u << 24},
        {"connections_max", options->connections_max, 1, SL_FABRIC_SLOTS_MAX},
        {"unauthenticated_max", options->unauthenticated_max, 1, SL_FABRIC_SLOTS_MAX},
        {"handshake_ns", options->handshake_ns, 1, 3600 * SL_NS_PER_S},
        {"movers", options->movers, 0, SL_FABRIC_MOVERS_MAX},
        {"unit_bytes", options->unit_bytes, SL_DIGEST_CHUNK_BYTES, SL_FABRIC_UNIT_MAX},
        {"region_bytes_max", options->region_bytes_max, SL_PAGE_BYTES, UINT64_MAX},
        {"stall_ns", options->stall_ns, 1, 3600 * SL_NS_PER_S},
        {"connect_ns", options->connect_ns, 1, 3600 * SL_NS_PER_S},
        {"backoff_max_ns", options->backoff_max_ns, options->backoff_min_ns, 3600 * SL_NS_PER_S},
    };
    for (size_t i = 0; i < SL_COUNT(bounds); i++) {
        if (!in_range(bounds[i].value, bounds[i].low, bounds[i].high)) {
            return sl_fail(why, SL_ERR_INVALID,
                           "%s %" PRIu64 " is not within %" PRIu64 "..%" PRIu64, bounds[i].name,
                           bounds[i].value, bounds[i].low, bounds[i].high);
        }
    }
    if (options->unit_bytes % SL_DIGEST_CHUNK_BYTES != 0) {
        return sl_fail(why, SL_ERR_INVALID, "unit_bytes %" PRIu64 " is no multiple of 16 KiB",
                       options->unit_bytes);
    }
    return SL_OK;
}

static sl_err tables_make(struct sl_fabric *fabric, struct sl_error *why)
{
    const struct sl_fabric_options *options = &fabric->options;
    fabric->links = calloc(options->peers_max, sizeof(*fabric->links));
    fabric->memories = calloc(options->memories_max, sizeof(*fabric->memories));
    fabric->grants = calloc(options->grants_max, sizeof(*fabric->grants));
    fabric->keys = calloc(options->keys_max, sizeof(*fabric->keys));
    fabric->transfers = calloc(options->transfers_max, sizeof(*fabric->transfers));
    fabric->pieces = calloc(options->pieces_max, sizeof(*fabric->pieces));
    fabric->codes = calloc(SL_FABRIC_PIECES_MAX, 1);
    if (fabric->links == NULL || fabric->memories == NULL || fabric->grants == NULL ||
        fabric->keys == NULL || fabric->transfers == NULL || fabric->pieces == NULL ||
        fabric->codes == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for the tables of a fabric");
    }
    sl_err err = fabric_places_open(&fabric->places, options->places_max,
                                    options->pieces_max + options->grants_max, why);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < options->grants_max; i++) {
        fabric->grants[i].index = i;
    }
    for (uint32_t i = 0; i < options->transfers_max; i++) {
        fabric->transfers[i].next = i + 1 < options->transfers_max ? i + 1 : FABRIC_NONE;
    }
    fabric->pieces_free = options->pieces_max;
    for (uint32_t i = 0; i < options->pieces_max; i++) {
        fabric->pieces[i].next = i + 1 < options->pieces_max ? i + 1 : FABRIC_NONE;
    }
    return SL_OK;
}

sl_err fabric_open_with(const struct fabric_backend *ops, const struct sl_fabric_options *options,
                        struct sl_fabric **out, struct sl_error *why)
{
    sl_err err = options_check(options, why);
    if (err != SL_OK) {
        return err;
    }
    struct sl_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a fabric");
    }
    fabric->options = *options;
    fabric->ops = ops;
    fabric->fd = -1;
    fabric->keys_die = strcmp(ops->name, "verbs") == 0;
    fabric->deadline_ns = SL_NEVER_NS;
    fabric->ended_head = fabric->ended_tail = FABRIC_NONE;
    fabric->random_state = options->seed;
    err = tables_make(fabric, why);
    if (err == SL_OK && options->seed == 0) {
        err = fabric_secret(&fabric->random_state, sizeof(fabric->random_state), why);
    }
    if (err == SL_OK) { /* so that generations of a restarted fabric differ */
        err = fabric_secret(&fabric->next_generation, sizeof(fabric->next_generation), why);
    }
    fabric->next_generation >>= 1;
    if (err == SL_OK) {
        err = fabric_rails_open(fabric, why);
    }
    if (err != SL_OK) {
        sl_fabric_close(&fabric);
        return err;
    }
    *out = fabric;
    return SL_OK;
}

void sl_fabric_close(struct sl_fabric **at)
{
    struct sl_fabric *fabric = *at;
    if (fabric == NULL) {
        return;
    }
    memset(&fabric->options.events, 0, sizeof(fabric->options.events));
    fabric->closing = true;
    for (uint32_t i = 0; i < fabric->rail_count; i++) {
        fabric->ops->quiesce(fabric->rails[i]); /* from here on it accesses no memory */
    }
    for (uint32_t i = 0; fabric->memories != NULL && i < fabric->options.memories_max; i++) {
        if (fabric->memories[i].state != MEMORY_FREE) {
            fabric_memory_clear(fabric, i);
        }
    }
    for (uint32_t i = 0; fabric->keys != NULL && i < fabric->options.keys_max; i++) {
        fabric_key_free(fabric, &fabric->keys[i]);
    }
    fabric_rails_close(fabric);
    free(fabric->links);
    free(fabric->memories);
    free(fabric->grants);
    free(fabric->keys);
    free(fabric->transfers);
    free(fabric->pieces);
    free(fabric->codes);
    fabric_places_close(&fabric->places);
    free(fabric);
    *at = NULL;
}
