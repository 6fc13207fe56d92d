/* tests/sim/sim_fabric.c - bytes between hosts: a back end of the transporter's rail, whose core is
 * the shipped one. The holder's process serves a request slice by slice, from the memory as it is
 * at that time, and the slices arrive one by one. Memory may still be written to for a while: that
 * of a unit that was given up, that of a link until its end is complete, and that of a grant until
 * it has ended. */
#include "runtime/net/fabric/tcp/tcp.h"
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define SLICE_BYTES   8192u
#define SLICE_NS      (200 * SL_NS_PER_US)
#define SLICE_NS_SLOW (80 * SL_NS_PER_MS) /* the holder is busy */
#define HELD_NS       (20 * SL_NS_PER_MS) /* how long a given-up unit is still written to */
#define HELD_NS_LONG  (1800 * SL_NS_PER_MS)
#define STOP_NS       (5 * SL_NS_PER_MS)
#define PORT          1u
#define LATE_BYTE     0xDB

/* A peer that we request from. */
struct far {
    struct sl_wire_address address;
    uint64_t connection, life; /* of the link; 0: none */
    uint64_t stop_ns;          /* when it will have stopped; 0: it is not stopping */
    uint64_t order_ns[SL_FABRIC_LANES_MAX], progress_ns[SL_FABRIC_LANES_MAX],
        held_ns[SL_FABRIC_LANES_MAX];
};

/* A lane of a host that requests from us: its units are served one after the other. */
struct served {
    uint64_t connection, order_ns, first, next; /* turns: those of the units in the queue */
};

struct sim_fabric {
    struct fabric_rail *rail;
    struct sim_node *node;
    uint64_t due_ns;
    uint8_t secret[SL_WIRE_TOKEN_BYTES];
    struct sim_packet *first, *last;
    struct served served[SIM_HOSTS_MAX][SL_FABRIC_LANES_MAX];
};

static struct sim_fabric *sim_fabric_of(const struct fabric_rail *rail)
{
    return rail->backend;
}

static uint64_t now_of(const struct sim_fabric *self)
{
    return self->node->sim->now_ns;
}

static void due(struct sim_fabric *self, uint64_t at_ns)
{
    self->due_ns = SL_MIN(self->due_ns, at_ns);
    sim_env_wake_at(&self->node->env, at_ns);
}

static void peer_lost(struct fabric_peer *peer, sl_err code, const char *text)
{
    struct sl_error why = {0};
    (void)sl_fail(&why, code, "%s", text);
    fabric_peer_fail(peer, &why);
}

static bool far_send(struct fabric_peer *peer, struct sim_packet *packet, uint64_t *order_ns)
{
    struct sim_fabric *self = sim_fabric_of(peer->rail);
    const struct far *far = peer->backend;
    packet->connection = far->connection;
    packet->peer = peer->index;
    return sim_packet_send(self->node, far->address.ip[0], far->life, packet, order_ns);
}

static void runs_fill(struct sl_runs runs, uint64_t length_bytes, unsigned char with)
{
    for (; length_bytes > 0; length_bytes--) {
        sl_runs_write(runs, &with, 1);
        sl_runs_skip(&runs, 1);
    }
}

/* ---- links ---- */

static sl_err link_begin(struct fabric_peer *peer, struct sl_error *why)
{
    struct sim_fabric *self = sim_fabric_of(peer->rail);
    struct sim *sim = self->node->sim;
    struct far *far = peer->backend;
    if (far == NULL || far->connection != 0) {
        return SL_OK; /* its address is not known yet, or the link is being built */
    }
    const struct sim_node *door = sim_node_named(&sim->hosts[far->address.ip[0]], sim, SIM_DOOR);
    memset(far->held_ns, 0, sizeof(far->held_ns));
    far->connection = ++sim->connection_number;
    far->life = door != NULL ? door->incarnation : 0;
    struct sim_packet *hello = sim_packet_make(self->node, PACKET_HELLO, NULL, 0);
    memcpy(hello->ask.token, far->address.psk, sizeof(hello->ask.token));
    uint64_t order_ns = 0;
    if (!far_send(peer, hello, &order_ns)) {
        far->connection = 0;
        return sl_fail(why, SL_ERR_UNREACHABLE, "nobody listens");
    }
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        far->order_ns[i] = order_ns;
    }
    return SL_OK;
}

static sl_err sim_peer_start(struct fabric_peer *peer, struct sl_error *why)
{
    struct fabric_rail *rail = peer->rail;
    const struct sim_fabric *self = sim_fabric_of(rail);
    unsigned char blob[SL_WIRE_ADDRESS_BYTES];
    struct sl_wire_address own = {.port = PORT, .ip = {(uint8_t)sim_host_number(self->node)}};
    memcpy(own.psk, self->secret, sizeof(self->secret));
    sl_wire_address_write(&own, blob);
    fabric_address_report(peer, blob, sizeof(blob));
    return link_begin(peer, why);
}

static sl_err sim_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                               struct sl_error *why)
{
    struct sl_wire_address address;
    sl_err err = sl_wire_address_read(blob, length_bytes, &address, why);
    if (err != SL_OK) {
        return err;
    }
    SIM_CHECK(address.ip[0] < SIM_HOSTS_MAX, "an address of no host");
    struct far *far = peer->backend;
    bool fresh = far == NULL;
    if (fresh) {
        far = peer->backend = calloc(1, sizeof(*far));
        SIM_CHECK(far != NULL, "out of memory");
    }
    bool moved = !fresh && memcmp(far->address.psk, address.psk, sizeof(address.psk)) != 0;
    far->address = address;
    if (moved) {
        peer_lost(peer, SL_ERR_PEER_DIED, "the peer has a new address");
    }
    if (moved || fresh) {
        peer->failures = 0;
        if (peer->state == PEER_WAITING) {
            peer->due_ns = SL_MIN(peer->due_ns, peer->rail->now_ns);
        }
    }
    struct sl_error refused = {0};
    if (peer->state == PEER_STARTING && link_begin(peer, &refused) != SL_OK) {
        fabric_peer_fail(peer, &refused);
    }
    return SL_OK;
}

/* Bytes in flight on a link that ends arrive before it has ended. */
static void lane_land(struct fabric_lane *lane)
{
    for (uint64_t i = lane->head; i < lane->sent; i++) {
        struct fabric_unit *unit = fabric_lane_unit(lane, i);
        if (unit->piece != FABRIC_NONE) {
            runs_fill(unit->local, unit->length_bytes, LATE_BYTE);
        }
    }
}

static void stopped(struct fabric_peer *peer)
{
    struct far *far = peer->backend;
    if (far != NULL && far->stop_ns != 0) {
        for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
            lane_land(&peer->lanes[i]);
        }
    }
    if (far != NULL) {
        far->stop_ns = 0;
    }
    if (peer->removed) {
        free(far);
        peer->backend = NULL;
    }
    fabric_peer_stopped(peer);
}

static void sim_peer_stop(struct fabric_peer *peer, bool last)
{
    struct sim_fabric *self = sim_fabric_of(peer->rail);
    struct far *far = peer->backend;
    (void)last;
    if (far == NULL || far->connection == 0 || sim_random_below(self->node->sim, 2) == 0) {
        if (far != NULL) {
            far->connection = 0;
        }
        stopped(peer);
        return;
    }
    far->connection = 0;
    far->stop_ns = now_of(self) + 1 + sim_random_below(self->node->sim, STOP_NS);
    due(self, far->stop_ns);
}

static void runs_read(struct sl_runs runs, void *to, uint64_t length_bytes)
{
    unsigned char *bytes = to;
    while (length_bytes > 0) {
        struct iovec part = sl_runs_part(&runs, length_bytes);
        memcpy(bytes, part.iov_base, part.iov_len);
        sl_runs_skip(&runs, part.iov_len);
        bytes += part.iov_len;
        length_bytes -= part.iov_len;
    }
}

/* ---- requesting ---- */

static void sim_lane_push(struct fabric_lane *lane)
{
    struct fabric_peer *peer = lane->peer;
    struct fabric_rail *rail = peer->rail;
    struct sim_fabric *self = sim_fabric_of(rail);
    struct far *far = peer->backend;
    bool reached = true;
    if (lane->head == lane->sent) { /* the clock of the stall starts now */
        far->progress_ns[lane->index] = now_of(self);
    }
    for (; reached && lane->sent < lane->tail; lane->sent++) {
        struct fabric_unit *unit = fabric_lane_unit(lane, lane->sent);
        if (unit->piece == FABRIC_NONE) {
            unit->skipped = true;
            continue;
        }
        const struct fabric_right *key = &rail->rights[unit->key];
        struct sim_packet *ask = sim_packet_make(self->node, PACKET_ASK, NULL, 0);
        ask->lane = lane->index;
        ask->unit = lane->sent;
        ask->ask = (struct sl_wire_request){.verb = SL_WIRE_READ,
                                            .length_bytes = unit->length_bytes,
                                            .offset_bytes = unit->remote_offset_bytes,
                                            .generation = key->grant_generation,
                                            .grant = key->grant_index};
        memcpy(ask->ask.token, key->token, sizeof(key->token));
        reached = far_send(peer, ask, &far->order_ns[lane->index]);
    }
    while (lane->head < lane->sent && fabric_lane_unit(lane, lane->head)->skipped) {
        fabric_unit_end(lane, SL_OK);
    }
    due(self, now_of(self) + rail->options.stall_ns);
    if (!reached) {
        peer_lost(peer, SL_ERR_PEER_DIED, "reset by the peer");
    }
}

/* late_bytes: bytes in flight arrive before the unit ends. */
static void lane_release(struct fabric_lane *lane, bool late_bytes)
{
    for (uint64_t i = lane->head; i < lane->tail; i++) {
        struct fabric_unit *unit = fabric_lane_unit(lane, i);
        if (fabric_unit_given_up(lane, unit)) {
            if (late_bytes) {
                runs_fill(unit->local, unit->length_bytes, LATE_BYTE);
            }
            fabric_unit_release(lane, unit, SL_ERR_CANCELLED);
        }
    }
}

static void sim_lane_cancel(struct fabric_lane *lane)
{
    struct sim_fabric *self = sim_fabric_of(lane->peer->rail);
    struct sim *sim = self->node->sim;
    struct far *far = lane->peer->backend;
    if (far == NULL || lane->head == lane->sent || sim_random_below(sim, 2) == 0) {
        lane_release(lane, false);
    } else if (far->held_ns[lane->index] == 0) {
        uint64_t ns_max = sim_random_below(sim, 3) == 0 ? HELD_NS_LONG : HELD_NS;
        far->held_ns[lane->index] = now_of(self) + 1 + sim_random_below(sim, ns_max);
        due(self, far->held_ns[lane->index]);
    }
}

/* ---- serving ---- */

static struct fabric_grant *grant_find(struct fabric_rail *rail, const struct sl_wire_request *ask)
{
    struct fabric_grant *grant =
        ask->grant < rail->options.grants_max ? &rail->fabric->grants[ask->grant] : NULL;
    if (grant == NULL || grant->state != GRANT_LIVE || grant->generation != ask->generation ||
        memcmp(grant->token, ask->token, sizeof(grant->token)) != 0) {
        return NULL;
    }
    uint64_t from = grant->what.offset_bytes, length = grant->what.length_bytes;
    bool within = ask->offset_bytes >= from && ask->offset_bytes - from <= length &&
                  ask->length_bytes <= length - (ask->offset_bytes - from);
    return within ? grant : NULL;
}

static void answer(struct sim_fabric *self, const struct sim_packet *ask, struct sim_packet *reply,
                   uint64_t *order_ns)
{
    reply->connection = ask->connection;
    reply->peer = ask->peer;
    reply->lane = ask->lane;
    reply->unit = ask->unit;
    (void)sim_packet_send(self->node, ask->from, ask->from_life, reply, order_ns);
}

/* A delayed HELLO of a link that its requester gave up and replaced is ignored: only the newest
 * link is served. */
static void hello_serve(struct sim_fabric *self, const struct sim_packet *hello)
{
    if (hello->connection < self->served[hello->from][0].connection) {
        return;
    }
    struct sim_packet *reply = sim_packet_make(self->node, PACKET_WELCOME, NULL, 0);
    uint64_t order_ns = 0;
    bool known = memcmp(hello->ask.token, self->secret, sizeof(self->secret)) == 0;
    reply->code = known ? SL_OK : SL_ERR_PERMISSION;
    for (uint32_t i = 0; known && i < SL_FABRIC_LANES_MAX; i++) {
        self->served[hello->from][i] = (struct served){.connection = hello->connection};
    }
    answer(self, hello, reply, &order_ns);
    for (uint32_t i = 0; known && i < SL_FABRIC_LANES_MAX; i++) {
        self->served[hello->from][i].order_ns = order_ns;
    }
}

static void grant_leave(struct fabric_rail *rail, struct fabric_grant *grant)
{
    struct fabric_share *share = &rail->shares[grant->index];
    share->serving--;
    if (share->serving == 0 && grant->state == GRANT_ENDING) {
        fabric_grant_gone(rail, grant);
    }
}

/* Takes the packet. */
static void ask_serve(struct sim_fabric *self, struct sim_packet *ask)
{
    struct served *served = &self->served[ask->from][ask->lane];
    if (served->connection != ask->connection) { /* of a link that was closed */
        free(ask);
        return;
    }
    struct fabric_grant *grant = grant_find(self->rail, &ask->ask);
    ask->code = grant == NULL ? SL_ERR_PERMISSION : SL_OK;
    self->rail->stats.refused += grant == NULL ? 1 : 0;
    if (grant != NULL) {
        self->rail->shares[grant->index].serving++;
    }
    ask->kind = PACKET_SERVE;
    ask->late = false;
    ask->turn = served->next++;
    uint32_t one_of = self->node->sim->slow_of;
    bool slow = one_of != 0 && sim_random_below(self->node->sim, one_of) == 0;
    ask->slice_ns = 1 + sim_random_below(self->node->sim, slow ? SLICE_NS_SLOW : SLICE_NS);
    sim_packet_later(self->node, ask, now_of(self) + ask->slice_ns);
}

/* Flips a bit now and then. */
static void bytes_corrupt(struct sim *sim, unsigned char *bytes, uint64_t length_bytes)
{
    if (sim->corrupt_of != 0 && length_bytes > 0 && sim_random_below(sim, sim->corrupt_of) == 0) {
        bytes[sim_random_below(sim, length_bytes)] ^= 0x10;
    }
}

/* Serves the next slice. Takes the packet. */
static void slice_serve(struct sim_fabric *self, struct sim_packet *ask)
{
    struct fabric_rail *rail = self->rail;
    struct served *served = &self->served[ask->from][ask->lane];
    struct fabric_grant *grant = ask->code == SL_OK ? &rail->fabric->grants[ask->ask.grant] : NULL;
    bool closed = served->connection != ask->connection;
    if (!closed && ask->turn != served->first) { /* an earlier unit is in progress */
        sim_packet_later(self->node, ask, now_of(self) + SLICE_NS);
        return;
    }
    uint64_t left = ask->ask.length_bytes - ask->at_bytes;
    uint64_t length = grant != NULL && !closed ? SL_MIN(left, (uint64_t)SLICE_BYTES) : 0;
    struct sl_runs at = {0};
    if (length > 0) {
        at = fabric_grant_runs(grant, ask->ask.offset_bytes + ask->at_bytes);
    }
    bool last = grant == NULL || closed || length == left;
    if (!closed) {
        struct sim_packet *data = sim_packet_make(self->node, PACKET_DATA, NULL, length);
        runs_read(at, data->bytes, data->length_bytes);
        bytes_corrupt(self->node->sim, data->bytes, data->length_bytes);
        data->code = ask->code;
        data->last = last;
        data->at_bytes = ask->at_bytes;
        answer(self, ask, data, &served->order_ns);
    }
    ask->at_bytes += length;
    if (!last) {
        sim_packet_later(self->node, ask, now_of(self) + ask->slice_ns);
        return;
    }
    served->first += closed ? 0 : 1;
    if (grant != NULL) {
        grant_leave(rail, grant);
    }
    free(ask);
}

/* ---- answers ---- */

static void data_take(struct sim_fabric *self, const struct sim_packet *data)
{
    struct fabric_peer *peer = &self->rail->peers[data->peer];
    struct far *far = peer->backend;
    if (peer->state != PEER_UP || far == NULL || far->connection != data->connection) {
        return;
    }
    struct fabric_lane *lane = &peer->lanes[data->lane];
    while (lane->head < lane->sent && fabric_lane_unit(lane, lane->head)->skipped) {
        fabric_unit_end(lane, SL_OK);
    }
    SIM_CHECK(lane->head == data->unit && lane->head < lane->sent, "an answer out of turn");
    struct fabric_unit *unit = fabric_lane_unit(lane, lane->head);
    far->progress_ns[data->lane] = now_of(self);
    if (data->length_bytes > 0) {
        if (unit->piece != FABRIC_NONE) {
            struct sl_runs to = unit->local;
            sl_runs_skip(&to, data->at_bytes);
            sl_runs_write(to, data->bytes, data->length_bytes);
        }
        struct sl_digest_stream *digest = fabric_unit_digest(lane);
        if (digest != NULL) {
            sl_digest_feed(digest, data->bytes, data->length_bytes);
        }
        fabric_unit_arrived(lane, data->length_bytes);
    }
    if (data->last) {
        fabric_unit_end(lane, data->code);
    }
}

static void welcome_take(struct sim_fabric *self, const struct sim_packet *packet)
{
    struct fabric_peer *peer = &self->rail->peers[packet->peer];
    const struct far *far = peer->backend;
    if (peer->state != PEER_STARTING || far == NULL || far->connection != packet->connection) {
        return;
    }
    if (packet->code == SL_OK) {
        fabric_peer_up(peer);
    } else {
        peer_lost(peer, SL_ERR_PEER_DIED, "a greeting was expected");
    }
}

static void reset_take(struct sim_fabric *self, const struct sim_packet *reset)
{
    for (uint32_t i = 0; i < self->rail->options.peers_max; i++) {
        struct fabric_peer *peer = &self->rail->peers[i];
        const struct far *far = peer->backend;
        if (far != NULL && far->connection != 0 && far->address.ip[0] == reset->from &&
            far->life == reset->from_life) {
            peer_lost(peer, SL_ERR_PEER_DIED, "reset by the peer");
        }
    }
}

void sim_fabric_take(struct sim_fabric *self, struct sim_packet *packet)
{
    if (self == NULL) {
        free(packet);
        return;
    }
    packet->next = NULL;
    if (self->last != NULL) {
        self->last->next = packet;
    } else {
        self->first = packet;
    }
    self->last = packet;
}

static void packet_handle(struct sim_fabric *self, struct sim_packet *packet)
{
    switch (packet->kind) {
    case PACKET_HELLO:
        hello_serve(self, packet);
        break;
    case PACKET_WELCOME:
        welcome_take(self, packet);
        break;
    case PACKET_RESET:
        reset_take(self, packet);
        break;
    case PACKET_ASK:
        ask_serve(self, packet);
        return;
    case PACKET_SERVE:
        slice_serve(self, packet);
        return;
    case PACKET_DATA:
        data_take(self, packet);
        break;
    case PACKET_FRAME:
        break;
    }
    free(packet);
}

/* ---- steps ---- */

static void lane_look(struct sim_fabric *self, struct fabric_lane *lane)
{
    struct fabric_peer *peer = lane->peer;
    struct far *far = peer->backend;
    uint64_t now_ns = now_of(self);
    if (far->held_ns[lane->index] != 0 && far->held_ns[lane->index] <= now_ns) {
        far->held_ns[lane->index] = 0;
        lane_release(lane, true);
    } else if (far->held_ns[lane->index] != 0) {
        due(self, far->held_ns[lane->index]);
    }
    if (peer->state == PEER_UP && lane->head < lane->sent) {
        uint64_t dead_ns = far->progress_ns[lane->index] + peer->rail->options.stall_ns;
        if (dead_ns <= now_ns) {
            peer_lost(peer, SL_ERR_PEER_DIED, "no progress for too long");
        } else {
            due(self, dead_ns);
        }
    }
}

static void sim_step(struct fabric_rail *rail)
{
    struct sim_fabric *self = sim_fabric_of(rail);
    self->due_ns = SL_NEVER_NS;
    while (self->first != NULL) {
        struct sim_packet *packet = self->first;
        self->first = packet->next;
        self->last = self->first == NULL ? NULL : self->last;
        packet_handle(self, packet);
    }
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        struct fabric_peer *peer = &rail->peers[i];
        const struct far *far = peer->backend;
        for (uint32_t k = 0; peer->state == PEER_UP && k < rail->options.lanes; k++) {
            lane_look(self, &peer->lanes[k]);
        }
        if (peer->state == PEER_STOPPING && far != NULL && far->stop_ns != 0) {
            if (far->stop_ns <= now_of(self)) {
                stopped(peer);
            } else {
                due(self, far->stop_ns);
            }
        }
    }
}

static uint64_t sim_wake_at(const struct fabric_rail *rail)
{
    return sim_fabric_of(rail)->due_ns;
}

/* ---- init and fini ---- */

static sl_err sim_open(struct fabric_rail *rail, struct sl_error *why)
{
    struct sim_fabric *self = calloc(1, sizeof(*self));
    SIM_CHECK(self != NULL, "out of memory");
    self->rail = rail;
    self->node = rail->options.backend_context;
    self->due_ns = SL_NEVER_NS;
    self->node->fabric = self;
    rail->backend = self;
    return fabric_secret(self->secret, sizeof(self->secret), why);
}

static void sim_quiesce(struct fabric_rail *rail)
{
    (void)rail;
}

static void sim_close(struct fabric_rail *rail)
{
    struct sim_fabric *self = sim_fabric_of(rail);
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        free(rail->peers[i].backend);
    }
    self->node->fabric = NULL;
    sim_fabric_dropped(self);
    free(self);
    rail->backend = NULL;
}

void sim_fabric_dropped(struct sim_fabric *self)
{
    while (self->first != NULL) {
        struct sim_packet *packet = self->first;
        self->first = packet->next;
        free(packet);
    }
}

/* A token, as with tcp. */
static sl_err sim_grant_add(struct fabric_rail *rail, struct fabric_grant *grant,
                            struct sl_error *why)
{
    return sl_fabric_tcp.grant_add(rail, grant, why);
}

static void sim_grant_end(struct fabric_rail *rail, struct fabric_grant *grant)
{
    if (rail->shares[grant->index].serving == 0) {
        fabric_grant_gone(rail, grant);
    }
}

static sl_err sim_key_parse(struct fabric_rail *rail, const void *blob, uint32_t length_bytes,
                            struct fabric_right *key, struct sl_error *why)
{
    return sl_fabric_tcp.key_parse(rail, blob, length_bytes, key, why);
}

const struct fabric_backend sim_fabric_backend = {
    .name = "sim",
    .open = sim_open,
    .quiesce = sim_quiesce,
    .close = sim_close,
    .peer_start = sim_peer_start,
    .peer_address = sim_peer_address,
    .peer_stop = sim_peer_stop,
    .grant_add = sim_grant_add,
    .grant_end = sim_grant_end,
    .key_parse = sim_key_parse,
    .lane_push = sim_lane_push,
    .lane_cancel = sim_lane_cancel,
    .step = sim_step,
    .wake_at = sim_wake_at,
};
