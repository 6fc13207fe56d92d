/* runtime/net/fabric/verbs/peer.c - queue pairs: made, connected by exchanged addresses, ended. */
#include "runtime/net/fabric/core/wire.h"
#include "runtime/net/fabric/verbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_MAGIC   UINT32_C(0x56544c53) /* "SLTV" */
#define ADDRESS_VERSION 1u
#define ADDRESS_HEAD    48u
#define READS_MAX       16u
/* Seven would mean infinite on some devices. */
#define RETRIES         6u
#define ACK_UNIT_NS     UINT64_C(4096)
#define ACK_TIMEOUT_MAX 31u

static struct verbs_peer *peer_state(const struct fabric_peer *peer)
{
    return peer->backend;
}

static bool state_make(struct fabric_peer *peer)
{
    peer->backend = peer->backend != NULL ? peer->backend : calloc(1, sizeof(struct verbs_peer));
    return peer->backend != NULL;
}

/* ---- addresses ---- */

static uint32_t address_write(const struct verbs_address *address, unsigned char *out)
{
    memset(out, 0, ADDRESS_HEAD);
    sl_wire_put(out, ADDRESS_MAGIC, 4);
    sl_wire_put(out + 4, ADDRESS_VERSION, 1);
    sl_wire_put(out + 5, address->lanes, 1);
    sl_wire_put(out + 6, address->mtu, 1);
    sl_wire_put(out + 7, address->reads, 1);
    sl_wire_put(out + 8, address->link_layer, 1);
    sl_wire_put(out + 10, address->lid, 2);
    memcpy(out + 16, address->gid, 16);
    sl_wire_put(out + 32, address->epoch, 8);
    sl_wire_put(out + 40, address->answers, 8);
    for (uint32_t i = 0; i < address->lanes; i++) {
        sl_wire_put(out + ADDRESS_HEAD + 8 * i, address->qpn[i], 4);
        sl_wire_put(out + ADDRESS_HEAD + 8 * i + 4, address->psn[i], 4);
    }
    return ADDRESS_HEAD + 8u * address->lanes;
}

static sl_err address_read(const void *blob, uint32_t length_bytes, struct verbs_address *out,
                           struct sl_error *why)
{
    const unsigned char *bytes = blob;
    if (length_bytes < ADDRESS_HEAD || sl_wire_get(bytes, 4) != ADDRESS_MAGIC) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs address: %u bytes, not valid", length_bytes);
    }
    if (bytes[4] != ADDRESS_VERSION) {
        return sl_fail(why, SL_ERR_VERSION, "verbs address: version %u", bytes[4]);
    }
    struct verbs_address address = {
        .lanes = bytes[5],
        .mtu = bytes[6],
        .reads = bytes[7],
        .link_layer = bytes[8],
        .lid = (uint16_t)sl_wire_get(bytes + 10, 2),
        .epoch = sl_wire_get(bytes + 32, 8),
        .answers = sl_wire_get(bytes + 40, 8),
    };
    memcpy(address.gid, bytes + 16, 16);
    if (address.lanes == 0 || address.lanes > SL_FABRIC_LANES_MAX || address.epoch == 0 ||
        address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096 || address.reads == 0 ||
        length_bytes != ADDRESS_HEAD + 8u * address.lanes) {
        return sl_fail(why, SL_ERR_PROTOCOL, "verbs address: %u lanes, mtu %u, %u bytes",
                       address.lanes, address.mtu, length_bytes);
    }
    for (uint32_t i = 0; i < address.lanes; i++) {
        address.qpn[i] = (uint32_t)sl_wire_get(bytes + ADDRESS_HEAD + 8 * i, 4) & 0xffffffu;
        address.psn[i] = (uint32_t)sl_wire_get(bytes + ADDRESS_HEAD + 8 * i + 4, 4) & 0xffffffu;
    }
    *out = address;
    return SL_OK;
}

static uint8_t reads_of(const struct verbs *verbs)
{
    int depth = SL_MIN(verbs->device.max_qp_rd_atom, verbs->device.max_qp_init_rd_atom);
    return (uint8_t)SL_MAX(1, SL_MIN(depth, (int)READS_MAX));
}

static void address_report(struct fabric_peer *peer)
{
    struct fabric_rail *rail = peer->rail;
    struct verbs *verbs = verbs_of(rail);
    struct verbs_peer *state = peer_state(peer);
    unsigned char blob[ADDRESS_HEAD + 8 * SL_FABRIC_LANES_MAX];
    struct verbs_address address = {
        .lanes = (uint8_t)rail->options.lanes,
        .mtu = (uint8_t)verbs->port_attr.active_mtu,
        .reads = reads_of(verbs),
        .link_layer = verbs->port_attr.link_layer,
        .lid = verbs->port_attr.lid,
        .epoch = state->epoch,
        .answers = state->connected,
    };
    memcpy(address.gid, verbs->gid.raw, 16);
    for (uint32_t i = 0; i < rail->options.lanes; i++) {
        address.qpn[i] = state->qps[i]->qp_num;
        address.psn[i] = state->psn[i];
    }
    state->report_due = false;
    fabric_address_report(peer, blob, address_write(&address, blob));
}

/* ---- queue pairs ---- */

static void qps_destroy(struct fabric_peer *peer)
{
    struct verbs *verbs = verbs_of(peer->rail);
    struct verbs_peer *state = peer_state(peer);
    uint32_t depth = peer->rail->options.depth + VERBS_CONTROL_MAX;
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        if (state->qps[i] != NULL) {
            struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
            (void)verbs->lib.verbs_modify_qp(state->qps[i], &attr, IBV_QP_STATE);
        }
    }
    verbs_grants_drop(peer); /* windows must be freed before their queue pair */
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        verbs->units_out -= (uint32_t)(peer->lanes[i].sent - peer->lanes[i].head);
        if (state->qps[i] != NULL) {
            (void)verbs->lib.verbs_destroy_qp(state->qps[i]);
            state->qps[i] = NULL;
            state->control_out[i] = 0;
            verbs->cq_used -= depth;
        }
    }
    if (state->connected != 0) {
        state->dead = state->connected;
    }
    state->epoch = state->connected = 0;
    state->confirmed = state->report_due = false;
}

/* Creates a queue pair with as many places for each request as the device grants: its own limit is
 * the maximum of any queue pair. Units are cut for the smallest limit found. */
static sl_err qp_create(struct fabric_rail *rail, uint32_t depth, struct ibv_qp **out,
                        struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    uint32_t sges = rail->spans_max;
    struct ibv_qp_init_attr init = {0};
    int code = 0;
    *out = NULL;
    for (; *out == NULL && sges > 0; sges /= 2) {
        init = (struct ibv_qp_init_attr){
            .send_cq = verbs->cq,
            .recv_cq = verbs->cq,
            .cap = {.max_send_wr = depth,
                    .max_recv_wr = 1,
                    .max_send_sge = sges,
                    .max_recv_sge = 1},
            .qp_type = IBV_QPT_RC,
        };
        struct ibv_qp *made = verbs->lib.verbs_create_qp(verbs->pd, &init);
        code = errno;
        if (made != NULL) {
            rail->spans_max = sges;
        }
        *out = made;
    }
    return *out != NULL ? SL_OK : sl_fail_os(why, code, "queue pair of %u", depth);
}

static sl_err qp_make(struct fabric_peer *peer, uint32_t lane, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(peer->rail);
    struct verbs_peer *state = peer_state(peer);
    uint32_t depth = peer->rail->options.depth + VERBS_CONTROL_MAX;
    if (verbs->cq_room - verbs->cq_used < depth) {
        return sl_fail(why, SL_ERR_LIMIT, "the completion queue has no room for another peer");
    }
    sl_err err = qp_create(peer->rail, depth, &state->qps[lane], why);
    if (err != SL_OK) {
        return err;
    }
    verbs->cq_used += depth;
    state->psn[lane] = (uint32_t)fabric_random(peer->rail->fabric) & 0xffffffu;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .pkey_index = 0,
        .port_num = verbs->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_READ,
    };
    int code = verbs->lib.verbs_modify_qp(state->qps[lane], &attr,
                                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                              IBV_QP_ACCESS_FLAGS);
    return code == 0 ? SL_OK : sl_fail_os(why, code, "queue pair to INIT");
}

/* All tries together take about half of stall_ns, because hardware may wait up to four times
 * longer: 67 ms, seven times, for the default of 1 s. */
static uint8_t ack_timeout(const struct fabric_rail *rail)
{
    uint64_t try_ns = rail->options.stall_ns / 2 / (RETRIES + 1);
    uint8_t exponent = 1;
    while (exponent < ACK_TIMEOUT_MAX && ACK_UNIT_NS << (exponent + 1) <= try_ns) {
        exponent++;
    }
    return exponent;
}

static sl_err qp_connect(struct fabric_peer *peer, uint32_t lane, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(peer->rail);
    struct verbs_peer *state = peer_state(peer);
    const struct verbs_address *remote = &state->remote;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu =
            (enum ibv_mtu)SL_MIN((unsigned)remote->mtu, (unsigned)verbs->port_attr.active_mtu),
        .dest_qp_num = remote->qpn[lane],
        .rq_psn = remote->psn[lane],
        .max_dest_rd_atomic = reads_of(verbs),
        .min_rnr_timer = 12,
        .ah_attr = {.dlid = remote->lid, .port_num = verbs->port},
    };
    if (verbs->gid.kind != SL_GID_INFINIBAND) {
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = (uint8_t)verbs->gid.index;
        attr.ah_attr.grh.hop_limit = 64;
        memcpy(attr.ah_attr.grh.dgid.raw, remote->gid, 16);
    }
    int code = verbs->lib.verbs_modify_qp(state->qps[lane], &attr,
                                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (code != 0) {
        return sl_fail_os(why, code, "queue pair to RTR");
    }
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .timeout = ack_timeout(peer->rail),
        .retry_cnt = RETRIES,
        .rnr_retry = RETRIES,
        .sq_psn = state->psn[lane],
        .max_rd_atomic = SL_MIN(remote->reads, reads_of(verbs)),
    };
    code =
        verbs->lib.verbs_modify_qp(state->qps[lane], &attr,
                                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return code == 0 ? SL_OK : sl_fail_os(why, code, "queue pair to RTS");
}

static void peer_connect(struct fabric_peer *peer)
{
    struct verbs_peer *state = peer_state(peer);
    struct sl_error why = {0};
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        if (qp_connect(peer, i, &why) != SL_OK) {
            fabric_peer_fail(peer, &why);
            return;
        }
    }
    state->connected = state->remote.epoch;
    state->confirmed = state->remote.answers == state->epoch;
    state->report_due = true; /* report which epoch we are connected to */
}

/* ---- life of a link ---- */

sl_err verbs_peer_start(struct fabric_peer *peer, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(peer->rail);
    if (!state_make(peer)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a peer");
    }
    struct verbs_peer *state = peer_state(peer);
    /* The port may have returned with another address or width. */
    (void)verbs->lib.verbs_query_port(verbs->context, verbs->port, &verbs->port_attr);
    state->life = ++verbs->next_life;
    for (uint32_t i = 0; i < peer->rail->options.lanes; i++) {
        sl_err err = qp_make(peer, i, why);
        if (err != SL_OK) {
            return err;
        }
    }
    state->epoch = fabric_random(peer->rail->fabric) | 1;
    if (state->has_remote && state->remote.epoch != state->dead && state->remote.answers == 0) {
        peer_connect(peer); /* its set is new, as ours */
    } else {
        state->report_due = true;
    }
    return SL_OK;
}

static void address_taken(struct fabric_peer *peer)
{
    struct verbs_peer *state = peer_state(peer);
    const struct verbs_address *remote = &state->remote;
    if (state->epoch == 0) { /* no link now: the next one uses this */
        if (peer->state == PEER_WAITING) {
            peer->due_ns = SL_MIN(peer->due_ns, peer->rail->now_ns);
        }
        return;
    }
    bool fresh = remote->answers == 0 || remote->answers == state->epoch;
    if (state->connected == 0 && fresh) {
        peer_connect(peer);
    } else if (state->connected == 0) {
        /* It is connected to an earlier set of ours, and must build a new one when it gets our
         * report. If we connected, each side would follow the other's sets forever. */
        state->dead = remote->epoch;
        state->has_remote = false;
        state->report_due = true;
    } else if (remote->epoch == state->connected) {
        state->confirmed |= remote->answers == state->epoch;
        state->report_due |= remote->answers != state->epoch; /* it has not received our report */
    } else {
        struct sl_error gone = {0};
        (void)sl_fail(&gone, SL_ERR_PEER_DIED, "the peer rebuilt its side of the link");
        fabric_peer_fail(peer, &gone);
        if (peer->state == PEER_WAITING) {
            peer->due_ns = SL_MIN(peer->due_ns, peer->rail->now_ns);
        }
    }
}

sl_err verbs_peer_address(struct fabric_peer *peer, const void *blob, uint32_t length_bytes,
                          struct sl_error *why)
{
    struct verbs_address address = {0};
    const struct verbs *verbs = verbs_of(peer->rail);
    sl_err err = address_read(blob, length_bytes, &address, why);
    if (err != SL_OK) {
        return err;
    }
    if (address.lanes != peer->rail->options.lanes ||
        address.link_layer != verbs->port_attr.link_layer) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "the peer has %u lanes and link layer %u, we have %u and %u", address.lanes,
                       address.link_layer, peer->rail->options.lanes, verbs->port_attr.link_layer);
    }
    if (!state_make(peer)) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a peer");
    }
    struct verbs_peer *state = peer_state(peer);
    if (address.epoch == state->dead) {
        return SL_OK; /* an old report */
    }
    state->remote = address;
    state->has_remote = true;
    address_taken(peer);
    return SL_OK;
}

void verbs_peer_stop(struct fabric_peer *peer, bool last)
{
    (void)last;
    if (peer->backend != NULL) {
        qps_destroy(peer);
    }
    if (peer->removed) {
        free(peer->backend);
        peer->backend = NULL;
    }
    fabric_peer_stopped(peer); /* nothing is in progress any more */
}

void verbs_peers_step(struct fabric_rail *rail)
{
    for (uint32_t i = 0; i < rail->options.peers_max; i++) {
        struct fabric_peer *peer = &rail->peers[i];
        struct verbs_peer *state = peer->state == PEER_FREE ? NULL : peer_state(peer);
        if (state == NULL || state->epoch == 0 || peer->removed) {
            continue;
        }
        if (state->report_due) {
            address_report(peer);
        }
        if (peer->state == PEER_STARTING && state->confirmed) {
            fabric_peer_up(peer);
        }
    }
}
