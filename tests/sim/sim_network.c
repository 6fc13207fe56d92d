/* tests/sim/sim_network.c - the network between hosts: links that are cut or slow, and frames
 * between transporters as ZeroMQ delivers them. A connection keeps the order of its frames. It ends
 * with either process, or after BEAT_NS without traffic. Frames that it had delivered by then may
 * be read after those of its successor, or twice. */
#include "tests/sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>

#define BEAT_NS       (2 * SL_NS_PER_S) /* of ZeroMQ's heartbeats */
#define BEAT_SPARE_NS (500 * SL_NS_PER_MS)
#define HANDSHAKE_NS  (3 * SL_NS_PER_MS)
#define RETRY_NS      (50 * SL_NS_PER_MS)
#define RETRY_NS_MORE (250 * SL_NS_PER_MS)
#define RESENT_NS     (200 * SL_NS_PER_MS) /* when TCP resends bytes that a cut held back */
#define STRAGGLER_NS  (100 * SL_NS_PER_MS)
#define RESET_ONE_OF  4u /* one in this number of short cuts ends the connection nevertheless */

struct sim_control {
    struct sl_control base; /* first */
    struct sim_node *node;
    struct sim_packet *first, *last, *open; /* open: borrowed by the actor */
    uint64_t routes[SIM_HOSTS_MAX];         /* the connection of a host's last request; 0: none */
    char name[2];                           /* the sender of open */
};

/* ---- links ---- */

bool sim_link_is_cut(const struct sim *sim, uint32_t from, uint32_t to)
{
    return sim->now_ns < sim->links[from][to].cut_until_ns;
}

static bool is_cut_off(const struct sim *sim, uint32_t one, uint32_t other)
{
    return sim_link_is_cut(sim, one, other) || sim_link_is_cut(sim, other, one);
}

static void connection_breaks(struct sim_connection *connection, uint64_t at_ns)
{
    if (connection->up) {
        connection->broken_ns = SL_MIN(connection->broken_ns, at_ns);
    }
}

/* Ends both connections between two hosts unless traffic resumes before. */
static void silence(struct sim *sim, uint32_t one, uint32_t other, uint64_t duration_ns)
{
    uint64_t at_ns = SL_NEVER_NS;
    if (duration_ns > BEAT_NS) {
        at_ns = sim->now_ns + BEAT_NS + sim_random_below(sim, BEAT_SPARE_NS);
    } else if (sim_random_below(sim, RESET_ONE_OF) == 0) {
        at_ns = sim->now_ns + sim_random_below(sim, duration_ns);
    }
    connection_breaks(&sim->connections[one][other], at_ns);
    connection_breaks(&sim->connections[other][one], at_ns);
}

static void link_note(const struct sim *sim, const char *what, uint32_t from, uint32_t to,
                      uint64_t ns)
{
    sim_log(sim, "link from host %u to %u is %s for %llu us", from, to, what,
            (unsigned long long)(ns / SL_NS_PER_US));
}

void sim_link_cut(struct sim *sim, uint32_t from, uint32_t to, uint64_t duration_ns)
{
    uint64_t until_ns = sim->now_ns + duration_ns;
    struct sim_link *link = &sim->links[from][to];
    link_note(sim, "cut", from, to, duration_ns);
    link->cut_until_ns = SL_MAX(link->cut_until_ns, until_ns);
    silence(sim, from, to, duration_ns);
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, until_ns);
}

void sim_link_slow(struct sim *sim, uint32_t from, uint32_t to, uint64_t delay_ns_max,
                   uint64_t duration_ns)
{
    struct sim_link *link = &sim->links[from][to];
    link_note(sim, "slow", from, to, duration_ns);
    link->slow_ns = delay_ns_max;
    link->slow_until_ns = sim->now_ns + duration_ns;
    sim->disturbed_ns = SL_MAX(sim->disturbed_ns, link->slow_until_ns + delay_ns_max);
}

void sim_reads_slow(struct sim *sim, uint32_t one_of)
{
    sim->slow_of = one_of;
}

void sim_reads_corrupt(struct sim *sim, uint32_t one_of)
{
    sim->corrupt_of = one_of;
}

void sim_network_stopped(struct sim_node *node, uint64_t duration_ns)
{
    uint32_t own = sim_host_number(node);
    for (uint32_t i = 0; node->control != NULL && i < node->sim->host_count; i++) {
        if (i != own && duration_ns > BEAT_NS) {
            silence(node->sim, own, i, duration_ns);
        }
    }
}

/* ---- packets ---- */

struct sim_packet *sim_packet_make(const struct sim_node *from, enum sim_packet_kind kind,
                                   const void *bytes, size_t length_bytes)
{
    struct sim_packet *packet = calloc(1, sizeof(*packet) + length_bytes);
    SIM_CHECK(packet != NULL, "out of memory");
    packet->kind = kind;
    packet->from = sim_host_number(from);
    packet->from_life = from->incarnation;
    packet->length_bytes = length_bytes;
    if (length_bytes > 0 && bytes != NULL) {
        memcpy(packet->bytes, bytes, length_bytes);
    }
    return packet;
}

static struct sim_node *door_of(struct sim *sim, uint32_t host)
{
    return sim_node_named(&sim->hosts[host], sim, SIM_DOOR);
}

void sim_packet_later(struct sim_node *node, struct sim_packet *packet, uint64_t at_ns)
{
    struct sim_event event = sim_event_for(node, EVENT_NETWORK, at_ns);
    event.frame = packet;
    sim_event_add(node->sim, event);
}

bool sim_packet_send(struct sim_node *from, uint32_t host, uint64_t life, struct sim_packet *packet,
                     uint64_t *order_ns)
{
    struct sim *sim = from->sim;
    uint32_t own = sim_host_number(from);
    const struct sim_link *link = &sim->links[own][host];
    struct sim_node *target = door_of(sim, host);
    if (target == NULL || target->incarnation != life) {
        free(packet);
        return is_cut_off(sim, own, host); /* otherwise the host's kernel refuses */
    }
    uint64_t delay_ns = link->slow_until_ns > sim->now_ns ? link->slow_ns : sim->delay_ns_max;
    uint64_t at_ns = sim->now_ns + 1 + sim_random_below(sim, delay_ns);
    if (sim_link_is_cut(sim, own, host)) {
        at_ns = link->cut_until_ns + 1 + sim_random_below(sim, RESENT_NS);
    }
    *order_ns = SL_MAX(at_ns, *order_ns + 1);
    sim_packet_later(target, packet, *order_ns);
    return true;
}

/* ---- connections ---- */

static bool is_living(struct sim *sim, uint32_t host, uint64_t life)
{
    const struct sim_node *door = door_of(sim, host);
    return door != NULL && door->incarnation == life;
}

static bool connection_stands(struct sim *sim, uint32_t asker, uint32_t listener)
{
    struct sim_connection *connection = &sim->connections[asker][listener];
    if (!connection->up) {
        return false;
    }
    bool alive = is_living(sim, asker, connection->asker_life) &&
                 is_living(sim, listener, connection->listener_life);
    if (!alive && !is_cut_off(sim, asker, listener)) {
        connection->broken_ns = sim->now_ns;
    } else if (!alive && connection->broken_ns == SL_NEVER_NS) {
        connection->broken_ns = sim->now_ns + BEAT_NS;
    }
    if (sim->now_ns >= connection->broken_ns) {
        connection->up = false;
        connection->usable_ns = sim->now_ns + RETRY_NS + sim_random_below(sim, RETRY_NS_MORE);
    }
    return connection->up;
}

/* The asker's side: connects when the time for it has come. */
static bool connection_ready(struct sim_node *node, uint32_t listener)
{
    struct sim *sim = node->sim;
    uint32_t own = sim_host_number(node);
    struct sim_connection *connection = &sim->connections[own][listener];
    if (connection_stands(sim, own, listener) && connection->asker_life == node->incarnation) {
        return sim->now_ns >= connection->usable_ns;
    }
    if (sim->now_ns < connection->usable_ns) {
        return false;
    }
    const struct sim_node *door = door_of(sim, listener);
    if (door == NULL || door->control == NULL || door->stopped_until_ns > sim->now_ns ||
        is_cut_off(sim, own, listener)) {
        connection->usable_ns = sim->now_ns + RETRY_NS + sim_random_below(sim, RETRY_NS_MORE);
        return false;
    }
    *connection = (struct sim_connection){
        .number = ++sim->connection_number,
        .up = true,
        .asker_life = node->incarnation,
        .listener_life = door->incarnation,
        .usable_ns = sim->now_ns + 1 + sim_random_below(sim, HANDSHAKE_NS),
        .broken_ns = SL_NEVER_NS,
    };
    return false;
}

/* ---- the control plane, as a transporter sees it ---- */

static struct sim_control *control_of(struct sl_control *base)
{
    return (struct sim_control *)base;
}

static sl_err control_peer_add(struct sl_control *base, const char *name, const char *address,
                               struct sl_error *why)
{
    const struct sim_control *self = control_of(base);
    (void)address, (void)why;
    SIM_CHECK(name[0] >= 'a' && (uint32_t)(name[0] - 'a') < self->node->sim->host_count &&
                  name[1] == '\0',
              "no host '%s'", name);
    return SL_OK;
}

static sl_err control_send(struct sl_control *base, const char *peer, const void *frame,
                           size_t length_bytes, bool answer)
{
    struct sim_control *self = control_of(base);
    struct sim *sim = self->node->sim;
    uint32_t own = sim_host_number(self->node), host = (uint32_t)(peer[0] - 'a');
    uint32_t asker = answer ? host : own, listener = answer ? own : host;
    struct sim_connection *connection = &sim->connections[asker][listener];
    bool ready =
        answer ? connection_stands(sim, asker, listener) && connection->number == self->routes[host]
               : connection_ready(self->node, host);
    if (!ready) {
        return SL_ERR_UNREACHABLE;
    }
    if (sim_link_is_cut(sim, own, host) &&
        sim->links[own][host].cut_until_ns >= connection->broken_ns) {
        return SL_OK; /* it will be lost, which neither side knows yet */
    }
    struct sim_packet *packet = sim_packet_make(self->node, PACKET_FRAME, frame, length_bytes);
    packet->connection = connection->number;
    packet->answer = answer;
    (void)sim_packet_send(self->node, host,
                          answer ? connection->asker_life : connection->listener_life, packet,
                          &connection->order_ns[answer]);
    return SL_OK;
}

static bool control_receive(struct sl_control *base, struct sl_control_frame *out)
{
    struct sim_control *self = control_of(base);
    free(self->open);
    struct sim_packet *packet = self->open = self->first;
    if (packet == NULL) {
        return false;
    }
    self->first = packet->next;
    self->last = self->first == NULL ? NULL : self->last;
    self->name[0] = (char)('a' + packet->from);
    *out = (struct sl_control_frame){.peer = self->name,
                                     .answer = packet->answer,
                                     .other = !packet->answer && self->routes[packet->from] != 0 &&
                                              self->routes[packet->from] != packet->connection,
                                     .from = "",
                                     .bytes = packet->bytes,
                                     .length_bytes = packet->length_bytes};
    return true;
}

static void control_heard(struct sl_control *base, const char *peer)
{
    struct sim_control *self = control_of(base);
    self->routes[peer[0] - 'a'] = self->open->connection;
}

static sl_err control_refuse(struct sl_control *base, const void *frame, size_t length_bytes)
{
    struct sim_control *self = control_of(base);
    uint32_t host = self->open->from;
    uint64_t route = self->routes[host];
    self->routes[host] = self->open->connection;
    sl_err err = control_send(base, self->name, frame, length_bytes, true);
    self->routes[host] = route;
    return err;
}

static int control_fd(const struct sl_control *base)
{
    (void)base;
    return -1;
}

static void control_close(struct sl_control *base)
{
    struct sim_control *self = control_of(base);
    while (self->first != NULL) {
        struct sim_packet *packet = self->first;
        self->first = packet->next;
        free(packet);
    }
    free(self->open);
    self->node->control = NULL;
    free(self);
}

static sl_err control_open(void *context, const struct sl_control_options *options,
                           struct sl_control **out, struct sl_error *why)
{
    static const struct sl_control_ops ops = {
        .peer_add = control_peer_add,
        .send = control_send,
        .receive = control_receive,
        .heard = control_heard,
        .refuse = control_refuse,
        .fd = control_fd,
        .close = control_close,
    };
    struct sim_control *self = calloc(1, sizeof(*self));
    (void)options, (void)why;
    SIM_CHECK(self != NULL, "out of memory");
    self->base.ops = &ops;
    self->node = context;
    self->node->control = self;
    *out = &self->base;
    return SL_OK;
}

static void control_take(struct sim_control *self, struct sim_packet *packet)
{
    if (self == NULL) { /* it does not listen */
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

/* ---- arrivals ---- */

static struct sim_packet *packet_copy(const struct sim_packet *packet)
{
    struct sim_packet *copy = malloc(sizeof(*copy) + packet->length_bytes);
    SIM_CHECK(copy != NULL, "out of memory");
    memcpy(copy, packet, sizeof(*copy) + packet->length_bytes);
    return copy;
}

/* A frame of a connection that has ended. It had arrived or not, and may be read before, between or
 * after the next connection's frames. */
static void frame_of_the_past(struct sim_node *node, struct sim_packet *packet)
{
    struct sim *sim = node->sim;
    switch (sim_random_below(sim, 5)) {
    case 0:
    case 1:
        free(packet);
        return;
    case 2:
        packet->late = true;
        sim_packet_later(node, packet, sim->now_ns + 1 + sim_random_below(sim, STRAGGLER_NS));
        return;
    case 3: {
        struct sim_packet *again = packet_copy(packet);
        again->late = true;
        sim_packet_later(node, again, sim->now_ns + 1 + sim_random_below(sim, STRAGGLER_NS));
        break;
    }
    default:
        break;
    }
    control_take(node->control, packet);
}

static void frame_arrives(struct sim_node *node, struct sim_packet *packet)
{
    struct sim *sim = node->sim;
    uint32_t own = sim_host_number(node);
    uint32_t asker = packet->answer ? own : packet->from;
    uint32_t listener = packet->answer ? packet->from : own;
    bool stands = connection_stands(sim, asker, listener) &&
                  sim->connections[asker][listener].number == packet->connection;
    if (stands || packet->late) {
        control_take(node->control, packet);
    } else {
        frame_of_the_past(node, packet);
    }
}

sl_err sim_network_event(struct sim_node *node, struct sim_event *event)
{
    struct sim *sim = node->sim;
    struct sim_packet *packet = event->frame;
    event->frame = NULL;
    sim_mix(sim, (uint64_t)packet->kind << 32 | packet->from);
    sim_mix(sim, sl_digest_of(packet->bytes, packet->length_bytes).low);
    if (packet->kind == PACKET_FRAME) {
        frame_arrives(node, packet);
    } else {
        sim_fabric_take(node->fabric, packet);
    }
    return node->actor->tick(node->state, sim->now_ns);
}

/* ---- starts and ends of processes ---- */

void sim_network_boot(struct sim_node *node)
{
    node->control = NULL;
    node->fabric = NULL;
    node->network = (struct sl_network){
        .context = node, .control_open = control_open, .backend = &sim_fabric_backend};
}

void sim_network_drop(struct sim_node *node)
{
    struct sim *sim = node->sim;
    uint32_t own = sim_host_number(node);
    if (node->control != NULL) {
        control_close(&node->control->base);
    }
    for (uint32_t i = 0; node->fabric != NULL && i < sim->host_count; i++) {
        const struct sim_node *door = i == own ? NULL : door_of(sim, i);
        uint64_t order_ns = 0;
        if (door != NULL && !is_cut_off(sim, own, i)) {
            (void)sim_packet_send(node, i, door->incarnation,
                                  sim_packet_make(node, PACKET_RESET, NULL, 0), &order_ns);
        }
    }
    if (node->fabric != NULL) {
        sim_fabric_dropped(node->fabric);
        node->fabric = NULL;
    }
}
