/* actors/transporter/regions/dmabufs.c - see dmabufs.h: asks swappers, fetches descriptors. */
#include "actors/transporter/regions/dmabufs.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define AGAIN_NS (100 * SL_NS_PER_MS)
#define TRIES_NS (10 * SL_NS_PER_S)
#define FETCH_NS (100 * SL_NS_PER_MS)

/* Whether a retry may help: the swapper is starting, or is about to map the engine. */
static bool is_temporary(sl_err code)
{
    return sl_err_class(code) == SL_CLASS_RETRY || code == SL_ERR_STALE || code == SL_ERR_NOT_FOUND;
}

/* Schedules a retry, or gives up. */
static void dmabuf_failed(struct tr_dmabuf *dmabuf, sl_err code, uint64_t now_ns)
{
    dmabuf->state =
        is_temporary(code) && now_ns < dmabuf->until_ns ? TR_DMABUF_WANTED : TR_DMABUF_NONE;
    dmabuf->again_ns = sl_deadline_ns(now_ns, AGAIN_NS);
}

uint64_t tr_dmabuf_ask(struct transporter *self, struct tr_dmabuf *dmabuf,
                       const struct tr_dmabuf_want *want, uint64_t *call_seq, struct sl_error *why)
{
    uint64_t now_ns = self->env->now_ns;
    struct sl_msg msg = {.type = SL_MSG_POOL_EXPORT};
    char to[32];
    if (now_ns < dmabuf->again_ns) {
        return dmabuf->again_ns;
    }
    dmabuf->until_ns = dmabuf->until_ns == 0 ? sl_deadline_ns(now_ns, TRIES_NS) : dmabuf->until_ns;
    (void)snprintf(to, sizeof(to), "swapper.%u", want->rank);
    msg.body.pool_export.engine_id = want->engine_id;
    msg.body.pool_export.rank = want->rank;
    msg.body.pool_export.handle_kind = want->handle->kind;
    msg.body.pool_export.pid = want->handle->pid;
    msg.body.pool_export.fd = want->handle->fd < 0 ? UINT32_MAX : (uint64_t)want->handle->fd;
    msg.body.pool_export.handle =
        (struct sl_bytes){.at = want->handle->ipc, .length = sizeof(want->handle->ipc)};
    msg.body.pool_export.length_bytes = want->length_bytes;
    sl_err err = sl_calls_send(self->calls, to, &msg, sl_deadline_ns(now_ns, TR_CALL_NS),
                               tr_cookie(TR_CALL_EXPORT, want->index), call_seq);
    if (err != SL_OK) {
        *call_seq = 0;
        (void)sl_fail(why, err, "%s cannot be asked for it", to);
        dmabuf_failed(dmabuf, err, now_ns);
        return dmabuf->again_ns;
    }
    dmabuf->state = TR_DMABUF_ASKED;
    return SL_NEVER_NS;
}

/* Keeps a duplicate: the caller closes its descriptors. */
static sl_err descriptor_keep(void *context, const struct sl_descriptors_part *part,
                              struct sl_error *why)
{
    int *fd = context;
    if (*fd >= 0 || part->count != 1) {
        return sl_fail(why, SL_ERR_PROTOCOL, "more than one descriptor of a dmabuf");
    }
    *fd = fcntl(part->fds[0], F_DUPFD_CLOEXEC, 0);
    return *fd >= 0 ? SL_OK : sl_fail_os(why, errno, "copy the descriptor of a dmabuf");
}

static sl_err descriptor_fetch(struct transporter *self,
                               const struct sl_body_pool_export_reply *body, int *fd,
                               struct sl_error *why)
{
    const struct sl_descriptors_source source = {.runtime_dir = self->env->paths->runtime_dir,
                                                 .pid = (uint32_t)body->pid,
                                                 .number = body->number};
    const struct sl_descriptors_request ask = {
        .address = body->name, .length_bytes = body->length_bytes, .life = body->life};
    return sl_descriptors_fetch(&source, &ask, descriptor_keep, fd,
                                sl_deadline_ns(sl_clock_monotonic_ns(), FETCH_NS), why);
}

void tr_dmabuf_answered(struct transporter *self, struct tr_dmabuf *dmabuf,
                        const struct sl_msg *reply, struct sl_error *why)
{
    int fd = -1;
    sl_err err = SL_OK;
    SL_ASSERT(dmabuf->state == TR_DMABUF_ASKED);
    if (reply == NULL) {
        err = sl_fail(why, SL_ERR_TIMEOUT, "the rank's swapper does not answer");
    } else if (reply->code != SL_OK) {
        err = sl_fail(why, reply->code, "%s",
                      reply->text.length > 0 ? reply->text.at : sl_err_text(reply->code));
    } else {
        err = descriptor_fetch(self, &reply->body.pool_export_reply, &fd, why);
    }
    if (err != SL_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        dmabuf_failed(dmabuf, err, self->env->now_ns);
        return;
    }
    SL_ASSERT(reply != NULL && fd >= 0);
    dmabuf->state = TR_DMABUF_THERE;
    dmabuf->memory = (struct sl_fabric_dmabuf){
        .fd = fd, .offset_bytes = reply->body.pool_export_reply.offset_bytes};
}

void tr_dmabuf_close(struct tr_dmabuf *dmabuf)
{
    if (dmabuf->state == TR_DMABUF_THERE) {
        (void)close(dmabuf->memory.fd);
    }
    dmabuf->state = TR_DMABUF_NONE;
}
