/* runtime/net/fabric/verbs/verbs.c - the verbs back end: device, port, address, memory; see
 * internal.h. */
#include "runtime/net/fabric/verbs/verbs.h"
#include "runtime/base/sl_parse.h"
#include "runtime/net/fabric/verbs/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define GIDS_MAX         256u
#define SOFT_ROCE_VENDOR 0xffffffu
#define ASYNC_EVERY      16u /* busy steps between two checks for asynchronous events */

/* ---- device, port, address ---- */

/* Whether the port is usable; chooses its address. */
static bool port_usable(struct fabric_rail *rail, struct ibv_context *context, uint8_t port,
                        struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    struct ibv_port_attr attr = {0};
    if (verbs->lib.verbs_query_port(context, port, &attr) != 0) {
        (void)sl_fail(why, SL_ERR_UNSUPPORTED, "port %u cannot be queried", port);
        return false;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        (void)sl_fail(why, SL_ERR_UNSUPPORTED, "port %u is not active", port);
        return false;
    }
    verbs->port_attr = attr;
    verbs->port = port;
    if (attr.link_layer == IBV_LINK_LAYER_INFINIBAND) {
        verbs->gid = (struct sl_gid){.kind = SL_GID_INFINIBAND};
        return true; /* InfiniBand uses local identifiers */
    }
    static struct ibv_gid_entry entries[GIDS_MAX];
    struct sl_gid gids[GIDS_MAX];
    uint32_t count = 0;
    ssize_t found =
        verbs->lib.verbs_query_gid_table(context, entries, GIDS_MAX, 0, sizeof(entries[0]));
    for (ssize_t i = 0; i < found; i++) {
        bool wanted = rail->options.gid_index < 0 ||
                      entries[i].gid_index == (uint32_t)rail->options.gid_index;
        if (entries[i].port_num != port || !wanted) {
            continue;
        }
        gids[count].index = entries[i].gid_index;
        gids[count].kind = entries[i].gid_type == IBV_GID_TYPE_ROCE_V2   ? SL_GID_ROCE_V2
                           : entries[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? SL_GID_ROCE_V1
                                                                         : SL_GID_INFINIBAND;
        memcpy(gids[count].raw, entries[i].gid.raw, 16);
        count++;
    }
    const struct sl_gid *gid =
        rail->options.gid_index >= 0 && count > 0 ? &gids[0] : sl_gid_choose(gids, count);
    if (gid == NULL) {
        (void)sl_fail(why, SL_ERR_UNSUPPORTED, "port %u has only link-local addresses", port);
        return false;
    }
    verbs->gid = *gid;
    return true;
}

static bool device_usable(struct fabric_rail *rail, struct ibv_context *context, uint8_t port,
                          struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    if (verbs->lib.verbs_query_device(context, &verbs->device) != 0) {
        (void)sl_fail(why, SL_ERR_UNSUPPORTED, "the device cannot be queried");
        return false;
    }
    for (uint8_t i = 1; i <= verbs->device.phys_port_cnt; i++) {
        if ((port == 0 || port == i) && port_usable(rail, context, i, why)) {
            return true;
        }
    }
    if (port > verbs->device.phys_port_cnt) {
        (void)sl_fail(why, SL_ERR_CONFIG, "it has no port %u", port);
    }
    return false;
}

/* Opens the device of the option nic: "NAME" or "NAME:PORT". */
static sl_err device_open(struct fabric_rail *rail, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    char wanted[IBV_SYSFS_NAME_MAX] = "";
    const char *nic = rail->options.nic == NULL ? "" : rail->options.nic;
    const char *colon = strchr(nic, ':');
    (void)snprintf(wanted, sizeof(wanted), "%.*s",
                   (int)(colon == NULL ? strlen(nic) : (size_t)(colon - nic)), nic);
    uint64_t port = 0;
    if (colon != NULL && !sl_parse_within(colon + 1, 1, UINT8_MAX, &port)) {
        return sl_fail(why, SL_ERR_CONFIG, "nic '%.80s': '%.16s' is no port", nic, colon + 1);
    }
    int count = 0;
    struct ibv_device **devices = verbs->lib.verbs_get_device_list(&count);
    struct sl_error reason = {0};
    (void)sl_fail(&reason, SL_ERR_UNSUPPORTED, "no device");
    bool seen = false;
    for (int i = 0; devices != NULL && i < count && verbs->context == NULL; i++) {
        if (wanted[0] != '\0' &&
            strcmp(verbs->lib.verbs_get_device_name(devices[i]), wanted) != 0) {
            continue;
        }
        seen = true;
        verbs->context = verbs->lib.verbs_open_device(devices[i]);
        if (verbs->context == NULL) {
            (void)sl_fail_os(&reason, errno, "open it");
        } else if (!device_usable(rail, verbs->context, (uint8_t)port, &reason)) {
            (void)verbs->lib.verbs_close_device(verbs->context);
            verbs->context = NULL;
        }
    }
    if (devices != NULL) {
        verbs->lib.verbs_free_device_list(devices);
    }
    if (verbs->context != NULL) {
        return SL_OK;
    }
    sl_err code = wanted[0] != '\0' ? SL_ERR_CONFIG : SL_ERR_UNSUPPORTED;
    return sl_fail(why, code, "rdma device '%s' (of %d): %.120s", wanted, count,
                   wanted[0] != '\0' && !seen ? "there is no such device" : reason.text);
}

/* ---- queues ---- */

static sl_err not_blocking(int fd, struct sl_error *why)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
        return sl_fail_os(why, errno, "make a verbs descriptor non-blocking");
    }
    return SL_OK;
}

static sl_err watch(struct verbs *verbs, int fd, struct sl_error *why)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    sl_err err = not_blocking(fd, why);
    if (err == SL_OK && epoll_ctl(verbs->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        err = sl_fail_os(why, errno, "watch a verbs descriptor");
    }
    return err;
}

static sl_err queues_open(struct fabric_rail *rail, struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    const struct sl_fabric_options *options = &rail->options;
    SL_ASSERT(verbs->context != NULL);
    verbs->pd = verbs->lib.verbs_alloc_pd(verbs->context);
    if (verbs->pd == NULL) {
        return sl_fail_os(why, errno, "protection domain");
    }
    verbs->channel = verbs->lib.verbs_create_comp_channel(verbs->context);
    if (verbs->channel == NULL) {
        return sl_fail_os(why, errno, "completion channel");
    }
    uint64_t wanted =
        (uint64_t)options->peers_max * options->lanes * (options->depth + VERBS_CONTROL_MAX);
    verbs->cq_room = (uint32_t)SL_MIN(wanted, (uint64_t)verbs->device.max_cqe);
    verbs->cq =
        verbs->lib.verbs_create_cq(verbs->context, (int)verbs->cq_room, NULL, verbs->channel, 0);
    if (verbs->cq == NULL) {
        return sl_fail_os(why, errno, "completion queue of %u", verbs->cq_room);
    }
    verbs->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (verbs->epoll_fd < 0) {
        return sl_fail_os(why, errno, "epoll");
    }
    rail->fd = verbs->epoll_fd;
    sl_err err = watch(verbs, verbs->channel->fd, why);
    return err == SL_OK ? watch(verbs, verbs->context->async_fd, why) : err;
}

static void verbs_describe(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    char gid[INET6_ADDRSTRLEN] = "lid";
    if (verbs->gid.kind != SL_GID_INFINIBAND) {
        (void)inet_ntop(AF_INET6, verbs->gid.raw, gid, sizeof(gid));
    }
    (void)snprintf(rail->about, sizeof(rail->about), "verbs %s port %u gid %u %s mtu %u, %s",
                   verbs->lib.verbs_get_device_name(verbs->context->device), verbs->port,
                   verbs->gid.index, gid, 128u << verbs->port_attr.active_mtu,
                   verbs->windows ? "memory windows" : "no memory windows");
}

/* Soft-RoCE (up to Linux 6.12 at least) checks key, access and queue pair of a window, but then
 * compares the range with the whole region: tests/rdma shows it. */
static bool windows_usable(const struct fabric_rail *rail)
{
    const struct verbs *verbs = verbs_of(rail);
    bool has = (verbs->device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
    bool sound = verbs->device.vendor_id != SOFT_ROCE_VENDOR;
    return has && (rail->options.windows == SL_FABRIC_WINDOWS_ANY ||
                   (rail->options.windows == SL_FABRIC_WINDOWS_SOUND && sound));
}

/* Some devices do not report a limit for reads: then one place for each request. */
static uint32_t sges_of(int device_max, uint32_t most)
{
    return device_max < 1 ? 1 : SL_MIN((uint32_t)device_max, most);
}

static sl_err verbs_open(struct fabric_rail *rail, struct sl_error *why)
{
    struct verbs *verbs = calloc(1, sizeof(*verbs));
    if (verbs == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a verbs fabric");
    }
    rail->backend = verbs;
    verbs->epoll_fd = -1;
    sl_err err = SL_OK;
    if (rail->options.backend_context != NULL) {
        verbs->lib = *(const struct sl_verbs_lib *)rail->options.backend_context;
    } else {
        err = sl_verbs_load(&verbs->lib, why);
    }
    if (err == SL_OK) {
        err = device_open(rail, why);
    }
    if (err == SL_OK) {
        err = queues_open(rail, why);
    }
    if (err != SL_OK) {
        return err;
    }
    verbs->windows = windows_usable(rail);
    int device_max = verbs->windows ? verbs->device.max_mw : verbs->device.max_mr;
    verbs->tickets_room =
        device_max > 0 ? SL_MIN((uint32_t)device_max, VERBS_TICKETS_MAX) : VERBS_TICKETS_MAX;
    if (verbs->device.max_mr_size >= SL_PAGE_BYTES) {
        rail->options.region_bytes_max =
            SL_MIN(rail->options.region_bytes_max, verbs->device.max_mr_size);
    }
    rail->spans_max =
        sges_of(verbs->device.max_sge_rd, sges_of(verbs->device.max_sge, VERBS_SGES_MAX));
    verbs_describe(rail);
    return SL_OK;
}

static void verbs_quiesce(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    for (uint32_t i = 0; verbs->cq != NULL && i < rail->options.peers_max; i++) {
        struct fabric_peer *peer = &rail->peers[i];
        if (peer->backend != NULL) {
            peer->state = PEER_STOPPING;
            peer->removed = true;
            verbs_peer_stop(peer, true); /* destroys the queue pairs, which ends all writes */
        }
    }
    for (uint32_t i = 0; i < rail->options.grants_max; i++) {
        struct fabric_grant *grant = &rail->fabric->grants[i];
        if (grant->state != GRANT_FREE && (grant->on & fabric_bit(rail)) != 0) {
            grant->state = GRANT_ENDING;
            verbs_grant_end(rail, grant);
        }
    }
    while (verbs->tickets_waiting > 0) { /* only registrations: no links exist */
        verbs_tickets_step(rail);
    }
}

static void verbs_close(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    for (uint32_t i = 0; i < verbs->free_count; i++) {
        (void)ibv_dealloc_mw(verbs->free_windows[i]);
    }
    free(verbs->free_windows);
    if (verbs->cq != NULL) {
        (void)verbs->lib.verbs_destroy_cq(verbs->cq);
    }
    if (verbs->channel != NULL) {
        (void)verbs->lib.verbs_destroy_comp_channel(verbs->channel);
    }
    if (verbs->pd != NULL) {
        (void)verbs->lib.verbs_dealloc_pd(verbs->pd);
    }
    if (verbs->context != NULL) {
        (void)verbs->lib.verbs_close_device(verbs->context);
    }
    if (verbs->epoll_fd >= 0) {
        close(verbs->epoll_fd);
    }
    free(verbs);
    rail->backend = NULL;
}

/* ---- memory ---- */

static sl_err verbs_dmabuf_check(const struct fabric_rail *rail, struct sl_error *why)
{
    return verbs_of(rail)->lib.verbs_reg_dmabuf_mr != NULL
               ? SL_OK
               : sl_fail(why, SL_ERR_UNSUPPORTED, "libibverbs has no ibv_reg_dmabuf_mr");
}

sl_err verbs_register(struct verbs *verbs, const struct sl_fabric_dmabuf *dmabuf, uint64_t at,
                      uint64_t length_bytes, int access, struct ibv_mr **out, struct sl_error *why)
{
    *out = dmabuf == NULL
               ? verbs->lib.verbs_reg_mr(verbs->pd, (void *)(uintptr_t)at, length_bytes, access)
               : verbs->lib.verbs_reg_dmabuf_mr(verbs->pd, dmabuf->offset_bytes, length_bytes, at,
                                                dmabuf->fd, access);
    int code = errno;
    if (*out != NULL) {
        return SL_OK;
    }
    if (dmabuf != NULL &&
        (code == EOPNOTSUPP || code == EINVAL || code == ENOSYS || code == EPROTONOSUPPORT)) {
        return sl_fail(why, SL_ERR_UNSUPPORTED,
                       "the rdma device does not take a dmabuf (%" PRIu64 " bytes at %" PRIu64
                       "): %s",
                       length_bytes, dmabuf->offset_bytes, strerror(code));
    }
    return sl_fail_os(why, code, "register %" PRIu64 " bytes as a memory region", length_bytes);
}

static sl_err verbs_region_add(struct fabric_rail *rail, const struct sl_fabric_dmabuf *dmabuf,
                               void *at, uint64_t length_bytes, struct fabric_region *out,
                               struct sl_error *why)
{
    struct verbs *verbs = verbs_of(rail);
    struct ibv_mr *region = NULL;
    int access = IBV_ACCESS_LOCAL_WRITE | (out->unread ? 0 : IBV_ACCESS_REMOTE_READ) |
                 (verbs->windows ? IBV_ACCESS_MW_BIND : 0);
    sl_err err = verbs_register(verbs, dmabuf, (uintptr_t)at, length_bytes, access, &region, why);
    if (err != SL_OK) {
        return err;
    }
    out->handle = region;
    out->addr = (uintptr_t)at;
    out->lkey = region->lkey;
    out->rkey = region->rkey;
    return SL_OK;
}

static void verbs_region_remove(struct fabric_rail *rail, struct fabric_region *region)
{
    (void)verbs_of(rail)->lib.verbs_dereg_mr(region->handle);
}

/* ---- steps ---- */

static void verbs_async(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    struct ibv_async_event event;
    while (verbs->lib.verbs_get_async_event(verbs->context, &event) == 0) {
        enum ibv_event_type type = event.event_type;
        verbs->lib.verbs_ack_async_event(&event);
        for (uint32_t i = 0; type == IBV_EVENT_DEVICE_FATAL && i < rail->options.peers_max; i++) {
            struct sl_error why = {0};
            (void)sl_fail(&why, SL_ERR_PEER_DIED, "the rdma device has failed");
            fabric_peer_fail(&rail->peers[i], &why);
        }
        /* Queue pairs report a lost port, and the next attempt uses a port that returned. */
    }
}

static void verbs_step(struct fabric_rail *rail)
{
    struct verbs *verbs = verbs_of(rail);
    verbs->busy_steps = verbs_poll(rail) ? verbs->busy_steps + 1 : 0;
    if (verbs->busy_steps % ASYNC_EVERY == 0) { /* a system call */
        verbs_async(rail);
    }
    verbs_tickets_step(rail);
    verbs_peers_step(rail);
}

const struct fabric_backend sl_fabric_verbs = {
    .name = "verbs",
    .open = verbs_open,
    .quiesce = verbs_quiesce,
    .close = verbs_close,
    .region_add = verbs_region_add,
    .region_remove = verbs_region_remove,
    .dmabuf_check = verbs_dmabuf_check,
    .peer_start = verbs_peer_start,
    .peer_address = verbs_peer_address,
    .peer_stop = verbs_peer_stop,
    .grant_add = verbs_grant_add,
    .grant_end = verbs_grant_end,
    .key_parse = verbs_key_parse,
    .lane_push = verbs_lane_push,
    /* No lane_cancel: a NIC cannot cancel requests, which end within its retries. No flush: every
       push rings the doorbell. No wake_at: queue pairs have their own deadlines. */
    .step = verbs_step,
};
