/* actors/transporter/rails/handout.c - see handout.h. */
#include "actors/transporter/rails/handout.h"

#include "runtime/sl_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct handed {
    uint64_t number; /* 0: free */
    uint64_t length_bytes;
    int fd;
};
struct tr_handout {
    struct sl_descriptors *server;
    pthread_mutex_t lock;
    struct handed *all;
    uint32_t count_max;
    uint64_t last; /* number */
};

static sl_err give(void *context, const struct sl_descriptors_ask *ask, uint32_t first,
                   struct sl_descriptors_part *out, struct sl_error *why)
{
    struct tr_handout *handout = context;
    struct sl_descriptors_part part = {.count = 1, .fds = {-1}};
    int os_code = first == 0 ? ENOENT : EINVAL;
    (void)pthread_mutex_lock(&handout->lock);
    for (uint32_t i = 0; first == 0 && ask->address != 0 && i < handout->count_max; i++) {
        if (handout->all[i].number == ask->address) {
            part.fds[0] = fcntl(handout->all[i].fd, F_DUPFD_CLOEXEC, 0);
            os_code = part.fds[0] < 0 ? errno : 0;
            part.lengths[0] = handout->all[i].length_bytes;
            break;
        }
    }
    (void)pthread_mutex_unlock(&handout->lock);
    if (os_code == ENOENT) {
        return sl_fail(why, SL_ERR_NOT_FOUND, "no descriptor %" PRIu64 " is handed out",
                       ask->address);
    }
    if (os_code != 0) {
        return sl_fail_os(why, os_code, "hand out descriptor %" PRIu64, ask->address);
    }
    *out = part;
    return SL_OK;
}

sl_err tr_handout_open(const char *runtime_dir, uint32_t count_max, struct tr_handout **out,
                       struct sl_error *why)
{
    struct tr_handout *handout = calloc(1, sizeof(*handout));
    if (handout == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for descriptors");
    }
    (void)pthread_mutex_init(&handout->lock, NULL);
    handout->count_max = count_max;
    handout->all = calloc(count_max, sizeof(*handout->all));
    sl_err err = handout->all == NULL
                     ? sl_fail(why, SL_ERR_NO_MEMORY, "no memory for %u descriptors", count_max)
                     : sl_descriptors_serve(runtime_dir, give, handout, &handout->server, why);
    if (err != SL_OK) {
        tr_handout_close(&handout);
        return err;
    }
    *out = handout;
    return SL_OK;
}

void tr_handout_close(struct tr_handout **at)
{
    struct tr_handout *handout = *at;
    if (handout == NULL) {
        return;
    }
    sl_descriptors_stop(&handout->server);
    for (uint32_t i = 0; handout->all != NULL && i < handout->count_max; i++) {
        if (handout->all[i].number != 0) {
            (void)close(handout->all[i].fd);
        }
    }
    (void)pthread_mutex_destroy(&handout->lock);
    free(handout->all);
    free(handout);
    *at = NULL;
}

uint32_t tr_handout_pid(const struct tr_handout *handout)
{
    (void)handout;
    return (uint32_t)getpid();
}

uint64_t tr_handout_socket(const struct tr_handout *handout)
{
    return sl_descriptors_number(handout->server);
}

sl_err tr_handout_add(struct tr_handout *handout, int fd, uint64_t length_bytes, uint64_t *number,
                      struct sl_error *why)
{
    uint32_t at = 0;
    while (at < handout->count_max && handout->all[at].number != 0) {
        at++;
    }
    if (at == handout->count_max) {
        return sl_fail(why, SL_ERR_LIMIT, "%u descriptors are handed out", at);
    }
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        return sl_fail_os(why, errno, "copy descriptor %d", fd);
    }
    (void)pthread_mutex_lock(&handout->lock);
    handout->all[at] =
        (struct handed){.number = ++handout->last, .length_bytes = length_bytes, .fd = copy};
    (void)pthread_mutex_unlock(&handout->lock);
    *number = handout->last;
    return SL_OK;
}

void tr_handout_remove(struct tr_handout *handout, uint64_t number)
{
    for (uint32_t i = 0; number != 0 && i < handout->count_max; i++) {
        if (handout->all[i].number == number) {
            (void)pthread_mutex_lock(&handout->lock);
            int fd = handout->all[i].fd;
            handout->all[i] = (struct handed){0};
            (void)pthread_mutex_unlock(&handout->lock);
            (void)close(fd);
            return;
        }
    }
}
