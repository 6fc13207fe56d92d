/* actors/swapper/exports.c - the table of exported descriptors, and the thread that hands them
 * out. */
#include "actors/swapper/exports.h"

#include "runtime/base/sl_clock.h"
#include "runtime/base/sl_descriptors.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define FETCH_NS (5 * SL_NS_PER_S) /* then an unfetched descriptor is closed */

struct row {
    int fd; /* -1: free */
    uint64_t name, life, length_bytes, engine_id, until_ns;
};
struct sw_exports {
    pthread_mutex_t lock; /* protects the rows */
    struct row rows[SW_EXPORTS_MAX];
    uint64_t last_name;
    struct sl_descriptors *server;
};

static void row_close(struct row *row)
{
    (void)close(row->fd);
    *row = (struct row){.fd = -1};
}

/* Runs on the server's thread. */
static sl_err export_give(void *context, const struct sl_descriptors_request *ask, uint32_t first,
                          struct sl_descriptors_part *out, struct sl_error *why)
{
    struct sw_exports *exports = context;
    bool found = false;
    if (ask->length_bytes == 0) { /* memory of a pool that was made here */
        return sl_descriptors_file(ask, out, why);
    }
    (void)pthread_mutex_lock(&exports->lock);
    for (uint32_t i = 0; i < SW_EXPORTS_MAX && first == 0 && !found; i++) {
        struct row *row = &exports->rows[i];
        found = row->fd >= 0 && row->name == ask->address && row->life == ask->life &&
                row->length_bytes == ask->length_bytes;
        if (found) { /* the server closes the descriptor */
            *out = (struct sl_descriptors_part){.count = 1};
            out->fds[0] = row->fd;
            out->lengths[0] = row->length_bytes;
            *row = (struct row){.fd = -1};
        }
    }
    (void)pthread_mutex_unlock(&exports->lock);
    return found ? SL_OK : sl_fail(why, SL_ERR_STALE, "that device memory is no longer exported");
}

sl_err sw_exports_open(struct sw_exports **out, const struct sl_env *env, struct sl_error *why)
{
    if (*out != NULL) {
        return SL_OK;
    }
    struct sw_exports *exports = calloc(1, sizeof(*exports));
    if (exports == NULL) {
        return sl_fail(why, SL_ERR_NO_MEMORY, "no memory for a table of descriptors");
    }
    for (uint32_t i = 0; i < SW_EXPORTS_MAX; i++) {
        exports->rows[i].fd = -1;
    }
    (void)pthread_mutex_init(&exports->lock, NULL);
    sl_err err = sl_descriptors_serve(env->paths->runtime_dir, env->self.start_time, export_give,
                                      exports, &exports->server, why);
    if (err != SL_OK) {
        sw_exports_close(&exports);
        return err;
    }
    *out = exports;
    return SL_OK;
}

static struct row *row_free(struct sw_exports *exports)
{
    for (uint32_t i = 0; i < SW_EXPORTS_MAX; i++) {
        if (exports->rows[i].fd < 0) {
            return &exports->rows[i];
        }
    }
    return NULL;
}

sl_err sw_exports_add(struct sw_exports **table, const struct sl_env *env,
                      const struct sl_device_dmabuf *dmabuf, uint64_t engine_id,
                      struct sw_export *out, struct sl_error *why)
{
    struct row fresh = {.fd = dmabuf->fd,
                        .length_bytes = dmabuf->length_bytes,
                        .engine_id = engine_id,
                        .until_ns = sl_deadline_ns(env->now_ns, FETCH_NS)};
    sl_err err = sw_exports_open(table, env, why);
    if (err == SL_OK && getrandom(&fresh.life, sizeof(fresh.life), 0) != sizeof(fresh.life)) {
        err = sl_fail_os(why, errno, "random bytes for a descriptor");
    }
    if (err != SL_OK) {
        (void)close(fresh.fd);
        return err;
    }
    struct sw_exports *exports = *table;
    SL_ASSERT(exports != NULL);
    (void)pthread_mutex_lock(&exports->lock);
    struct row *row = row_free(exports);
    if (row != NULL) {
        fresh.name = ++exports->last_name;
        *row = fresh;
    }
    (void)pthread_mutex_unlock(&exports->lock);
    if (row == NULL) {
        (void)close(fresh.fd);
        return sl_fail(why, SL_ERR_BUSY, "%u descriptors wait to be fetched", SW_EXPORTS_MAX);
    }
    *out = (struct sw_export){
        .number = sl_descriptors_number(exports->server), .name = fresh.name, .life = fresh.life};
    return SL_OK;
}

uint64_t sw_exports_end(struct sw_exports *exports, uint64_t engine_id, uint64_t now_ns)
{
    uint64_t next_ns = SL_NEVER_NS;
    if (exports == NULL) {
        return next_ns;
    }
    (void)pthread_mutex_lock(&exports->lock);
    for (uint32_t i = 0; i < SW_EXPORTS_MAX; i++) {
        struct row *row = &exports->rows[i];
        bool over = engine_id != 0 ? row->engine_id == engine_id : row->until_ns <= now_ns;
        if (row->fd >= 0 && over) {
            row_close(row);
        } else if (row->fd >= 0) {
            next_ns = SL_MIN(next_ns, row->until_ns);
        }
    }
    (void)pthread_mutex_unlock(&exports->lock);
    return next_ns;
}

uint32_t sw_exports_waiting(struct sw_exports *exports)
{
    uint32_t count = 0;
    if (exports != NULL) {
        (void)pthread_mutex_lock(&exports->lock);
        for (uint32_t i = 0; i < SW_EXPORTS_MAX; i++) {
            count += exports->rows[i].fd >= 0;
        }
        (void)pthread_mutex_unlock(&exports->lock);
    }
    return count;
}

void sw_exports_close(struct sw_exports **table)
{
    struct sw_exports *exports = *table;
    if (exports == NULL) {
        return;
    }
    sl_descriptors_stop(&exports->server);
    for (uint32_t i = 0; i < SW_EXPORTS_MAX; i++) {
        if (exports->rows[i].fd >= 0) {
            row_close(&exports->rows[i]);
        }
    }
    (void)pthread_mutex_destroy(&exports->lock);
    free(exports);
    *table = NULL;
}
