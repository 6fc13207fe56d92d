/* tests/support/fake_verbs.c - see fake_verbs.h. */
#include "tests/support/fake_verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGIONS_MAX 16384u
#define HELD_MAX    16384u
#define PAIRS_MAX   256u
#define DONES_MAX   65536u

struct fake_verbs fake_verbs;

struct region {
    struct ibv_mr mr;
    bool used, is_window;
    uint32_t key;
    uint64_t addr, length_bytes;
    unsigned char *bytes; /* of addr, in the NIC's mapping */
    void *map;            /* of a dmabuf */
    size_t map_bytes;
    int access;
};
struct pair {
    struct ibv_qp qp; /* first */
    bool used;
    enum ibv_qp_state state;
    unsigned access;
    uint32_t to, controls;
};
struct held { /* a completion that is held */
    uint32_t pair, qp_num;
    uint64_t id;
};
struct queue {
    struct ibv_cq cq; /* first */
    struct ibv_wc *dones;
    uint32_t head, tail;
    bool armed;
};

static struct region regions[REGIONS_MAX];
static struct pair pairs[PAIRS_MAX];
static struct held held[HELD_MAX];
static uint32_t held_count;
static uint32_t next_key;
static struct ibv_device device;

/* ---- memory ---- */

static struct region *region_by(uint32_t key)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (regions[i].used && regions[i].key == key) {
            return &regions[i];
        }
    }
    return NULL;
}

static struct region *region_new(void)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (!regions[i].used) {
            next_key += 256;
            regions[i] = (struct region){.used = true, .key = next_key};
            regions[i].mr.lkey = regions[i].mr.rkey = regions[i].key;
            return &regions[i];
        }
    }
    abort();
}

static bool is_refused(void)
{
    errno = fake_verbs.fail_code;
    return ++fake_verbs.asked == fake_verbs.fail_at;
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *at, size_t length, int access)
{
    if (is_refused()) {
        return NULL;
    }
    struct region *region = region_new();
    region->mr.context = pd->context;
    region->mr.pd = pd;
    region->addr = (uintptr_t)at;
    region->bytes = at;
    region->length_bytes = length;
    region->access = access;
    fake_verbs.regions++;
    return &region->mr;
}

static struct ibv_mr *fake_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                         uint64_t iova, int fd, int access)
{
    struct stat about;
    if (is_refused() || ++fake_verbs.dmabufs_asked == fake_verbs.fail_dmabuf_at) {
        errno = fake_verbs.fail_code;
        return NULL;
    }
    if (((offset ^ iova) & 4095u) != 0 || fstat(fd, &about) != 0 ||
        offset + length > (uint64_t)about.st_size) {
        errno = EINVAL;
        return NULL;
    }
    void *map = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return NULL;
    }
    struct region *region = region_new();
    region->mr.context = pd->context;
    region->mr.pd = pd;
    region->map = map;
    region->map_bytes = (size_t)about.st_size;
    region->addr = iova;
    region->bytes = (unsigned char *)map + offset;
    region->length_bytes = length;
    region->access = access;
    fake_verbs.regions++;
    fake_verbs.dmabufs++;
    return &region->mr;
}

static int fake_dereg_mr(struct ibv_mr *mr)
{
    struct region *region = region_by(mr->lkey);
    if (region == NULL) {
        abort();
    }
    if (region->map != NULL) {
        munmap(region->map, region->map_bytes);
        fake_verbs.dmabufs--;
    }
    region->used = false;
    fake_verbs.regions--;
    return 0;
}

static struct ibv_mw *fake_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
    errno = fake_verbs.fail_code;
    struct ibv_mw *window =
        ++fake_verbs.windows_met == fake_verbs.fail_window_at || fake_verbs.windows_out
            ? NULL
            : calloc(1, sizeof(*window));
    if (window == NULL) {
        return NULL;
    }
    fake_verbs.windows_made++;
    next_key += 256;
    *window = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type, .rkey = next_key};
    return window;
}

static void window_drop(uint32_t key)
{
    struct region *region = region_by(key);
    if (region != NULL && region->is_window) {
        region->used = false;
        fake_verbs.bound--;
    }
}

static int fake_dealloc_mw(struct ibv_mw *window)
{
    window_drop(window->rkey);
    fake_verbs.windows_made--;
    free(window);
    return 0;
}

static unsigned char *bytes_at(uint32_t key, uint64_t addr, uint64_t length, int right)
{
    const struct region *region = region_by(key);
    if (region == NULL || addr < region->addr || length > region->length_bytes ||
        addr - region->addr > region->length_bytes - length ||
        (right != 0 && (region->access & right) == 0)) {
        return NULL;
    }
    return region->bytes + (addr - region->addr);
}

/* ---- work ---- */

static void done_add(struct queue *queue, const struct pair *pair, uint64_t id,
                     enum ibv_wc_status status)
{
    uint64_t one = 1;
    queue->dones[queue->tail++ % DONES_MAX] =
        (struct ibv_wc){.wr_id = id, .status = status, .qp_num = pair->qp.qp_num};
    if (queue->armed) {
        queue->armed = false;
        (void)!write(queue->cq.channel->fd, &one, sizeof(one));
    }
}

static bool window_bind(const struct ibv_send_wr *work)
{
    const struct ibv_mw_bind_info *info = &work->bind_mw.bind_info;
    const struct region *below = region_by(info->mr->lkey);
    unsigned char *bytes = bytes_at(info->mr->lkey, info->addr, info->length, IBV_ACCESS_MW_BIND);
    if (bytes == NULL || fake_verbs.binds == fake_verbs.error_bind_at) {
        return false;
    }
    struct region *window = region_new();
    fake_verbs.bound++;
    window->is_window = true;
    window->key = work->bind_mw.rkey;
    window->addr = info->addr;
    window->length_bytes = info->length;
    window->bytes = bytes;
    window->access = (int)info->mw_access_flags;
    window->mr.pd = below->mr.pd;
    return true;
}

static bool bytes_move(const struct pair *to, const struct ibv_send_wr *work)
{
    if (++fake_verbs.requests_met == fake_verbs.refuse_at) {
        return false;
    }
    uint64_t at = work->wr.rdma.remote_addr;
    const int right = IBV_ACCESS_REMOTE_READ;
    for (int i = 0; i < work->num_sge; i++) {
        const struct ibv_sge *sge = &work->sg_list[i];
        unsigned char *here = bytes_at(sge->lkey, sge->addr, sge->length, 0);
        unsigned char *there = bytes_at(work->wr.rdma.rkey, at, sge->length, right);
        if (work->opcode != IBV_WR_RDMA_READ || (to->access & IBV_ACCESS_REMOTE_READ) == 0 ||
            here == NULL || there == NULL) {
            return false;
        }
        memmove(here, there, sge->length);
        at += sge->length;
    }
    fake_verbs.requests++;
    return true;
}

static bool work_do(const struct pair *pair, const struct ibv_send_wr *work)
{
    if (work->opcode == IBV_WR_BIND_MW) {
        return window_bind(work);
    }
    if (work->opcode == IBV_WR_LOCAL_INV) {
        window_drop(work->invalidate_rkey);
        return true;
    }
    for (uint32_t i = 0; i < PAIRS_MAX; i++) {
        if (pairs[i].used && pairs[i].qp.qp_num == pair->to && pairs[i].state >= IBV_QPS_RTR) {
            return bytes_move(&pairs[i], work);
        }
    }
    return false;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *work, struct ibv_send_wr **bad)
{
    struct pair *pair = (struct pair *)qp;
    *bad = work;
    if (pair->state != IBV_QPS_RTS) {
        return EINVAL;
    }
    bool binds = work->opcode == IBV_WR_BIND_MW;
    fake_verbs.binds += binds ? 1 : 0;
    if (binds && fake_verbs.binds == fake_verbs.fail_bind_at) {
        return fake_verbs.fail_code;
    }
    fake_verbs.posts++;
    for (; work != NULL; work = work->next) {
        fake_verbs.signalled += (work->send_flags & IBV_SEND_SIGNALED) != 0;
        bool allowed = pair->state == IBV_QPS_RTS && work_do(pair, work);
        fake_verbs.refused |= !allowed;
        pair->state = allowed ? pair->state : IBV_QPS_ERR;
        bool control = work->opcode == IBV_WR_BIND_MW || work->opcode == IBV_WR_LOCAL_INV;
        if (control) {
            pair->controls++;
            fake_verbs.controls_peak = SL_MAX(fake_verbs.controls_peak, pair->controls);
        }
        if (control && allowed && fake_verbs.holds) {
            if (held_count == HELD_MAX) {
                abort();
            }
            held[held_count++] = (struct held){
                .pair = (uint32_t)(pair - pairs), .qp_num = qp->qp_num, .id = work->wr_id};
            continue;
        }
        if (!allowed || (work->send_flags & IBV_SEND_SIGNALED) != 0) {
            done_add((struct queue *)qp->send_cq, pair, work->wr_id,
                     allowed ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
        }
    }
    return 0;
}

void fake_verbs_release(uint32_t count)
{
    uint32_t taken = 0;
    for (; taken < held_count && taken < count; taken++) {
        const struct pair *pair = &pairs[held[taken].pair];
        if (pair->used && pair->qp.qp_num == held[taken].qp_num) {
            done_add((struct queue *)pair->qp.send_cq, pair, held[taken].id, IBV_WC_SUCCESS);
        }
    }
    held_count -= taken;
    memmove(held, held + taken, held_count * sizeof(held[0]));
}

static void control_ended(const struct ibv_wc *done)
{
    for (uint32_t i = 0; done->wr_id >> 56 != 1 && i < PAIRS_MAX; i++) { /* 1: moves bytes */
        if (pairs[i].used && pairs[i].qp.qp_num == done->qp_num) {
            pairs[i].controls--;
        }
    }
}

static int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *out)
{
    struct queue *queue = (struct queue *)cq;
    int given = 0;
    while (given < count && queue->head != queue->tail) {
        control_ended(&queue->dones[queue->head % DONES_MAX]);
        out[given++] = queue->dones[queue->head++ % DONES_MAX];
    }
    return given;
}

static int fake_req_notify_cq(struct ibv_cq *cq, int solicited)
{
    (void)solicited;
    ((struct queue *)cq)->armed = true;
    return 0;
}

/* ---- the device ---- */

static struct ibv_device **fake_get_device_list(int *count)
{
    static struct ibv_device *list[2];
    list[0] = &device;
    *count = 1;
    return list;
}

static void fake_free_device_list(struct ibv_device **list)
{
    (void)list;
}

static const char *fake_get_device_name(struct ibv_device *one)
{
    return one->name;
}

static struct ibv_context *fake_open_device(struct ibv_device *one)
{
    struct ibv_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        return NULL;
    }
    context->device = one;
    context->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    context->ops.poll_cq = fake_poll_cq;
    context->ops.req_notify_cq = fake_req_notify_cq;
    context->ops.post_send = fake_post_send;
    context->ops.alloc_mw = fake_verbs.windows ? fake_alloc_mw : NULL;
    context->ops.dealloc_mw = fake_dealloc_mw;
    return context;
}

static int fake_close_device(struct ibv_context *context)
{
    close(context->async_fd);
    free(context);
    return 0;
}

static int fake_query_device(struct ibv_context *context, struct ibv_device_attr *out)
{
    (void)context;
    *out = (struct ibv_device_attr){.max_mr_size = UINT64_MAX,
                                    .phys_port_cnt = 1,
                                    .max_cqe = 32768,
                                    .max_mw = (int)fake_verbs.windows_most,
                                    .max_sge = 16,
                                    .max_sge_rd = 16,
                                    .max_qp_rd_atom = 16,
                                    .max_qp_init_rd_atom = 16,
                                    .device_cap_flags =
                                        fake_verbs.windows ? IBV_DEVICE_MEM_WINDOW_TYPE_2B : 0};
    return 0;
}

static int fake_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *out)
{
    (void)context;
    (void)port;
    *out = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                  .active_mtu = IBV_MTU_4096,
                                  .lid = 1,
                                  .link_layer = IBV_LINK_LAYER_INFINIBAND};
    return 0;
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof(*pd));
    if (pd != NULL) {
        pd->context = context;
    }
    return pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

static struct ibv_comp_channel *fake_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));
    if (channel != NULL) {
        channel->context = context;
        channel->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    }
    return channel;
}

static int fake_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

static struct ibv_cq *fake_create_cq(struct ibv_context *context, int room, void *user,
                                     struct ibv_comp_channel *channel, int vector)
{
    struct queue *queue = calloc(1, sizeof(*queue));
    (void)room;
    (void)user;
    (void)vector;
    if (queue == NULL) {
        return NULL;
    }
    queue->dones = calloc(DONES_MAX, sizeof(*queue->dones));
    queue->cq.context = context;
    queue->cq.channel = channel;
    return &queue->cq;
}

static int fake_destroy_cq(struct ibv_cq *cq)
{
    free(((struct queue *)cq)->dones);
    free(cq);
    return 0;
}

static int fake_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
    uint64_t count = 0;
    (void)cq;
    (void)user;
    return read(channel->fd, &count, sizeof(count)) == (ssize_t)sizeof(count) ? 0 : -1;
}

static void fake_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    (void)cq;
    (void)count;
}

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    for (uint32_t i = 0; i < PAIRS_MAX; i++) {
        if (!pairs[i].used) {
            pairs[i] = (struct pair){.used = true};
            pairs[i].qp.context = pd->context;
            pairs[i].qp.pd = pd;
            pairs[i].qp.send_cq = init->send_cq;
            pairs[i].qp.qp_num = ++next_key & 0xffffffu;
            return &pairs[i].qp;
        }
    }
    errno = ENOMEM;
    return NULL;
}

static int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    struct pair *pair = (struct pair *)qp;
    if ((mask & IBV_QP_STATE) != 0) {
        pair->state = attr->qp_state;
    }
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        pair->access = attr->qp_access_flags;
    }
    if ((mask & IBV_QP_DEST_QPN) != 0) {
        pair->to = attr->dest_qp_num;
    }
    return 0;
}

static int fake_destroy_qp(struct ibv_qp *qp)
{
    ((struct pair *)qp)->used = false;
    return 0;
}

static int fake_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    (void)context;
    (void)event;
    return -1;
}

static void fake_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

static const char *fake_wc_status_str(enum ibv_wc_status status)
{
    return status == IBV_WC_SUCCESS ? "success" : "refused";
}

static ssize_t fake_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                    size_t count, uint32_t flags, size_t entry_bytes)
{
    (void)context;
    (void)entries;
    (void)count;
    (void)flags;
    (void)entry_bytes;
    return 0;
}

struct sl_verbs_lib *fake_verbs_lib(void)
{
    static struct sl_verbs_lib lib;
    fake_verbs = (struct fake_verbs){0};
    memset(regions, 0, sizeof(regions));
    memset(pairs, 0, sizeof(pairs));
    held_count = 0;
    memcpy(device.name, "fake0", sizeof("fake0"));
#define FAKE_ENTRY(name, result, parameters) lib.verbs_##name = fake_##name;
    SL_VERBS_TABLE(FAKE_ENTRY)
    lib.verbs_query_gid_table = fake_query_gid_table;
    lib.verbs_reg_dmabuf_mr = fake_reg_dmabuf_mr;
    return &lib;
}
